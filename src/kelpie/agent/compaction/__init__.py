"""Compaction of a conversation that outgrows its context window."""
