"""Scenarios of turns: approvals, background runs, cancelling, compaction."""
