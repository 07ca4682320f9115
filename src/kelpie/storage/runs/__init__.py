"""Runs, steps, the journal, stored events and the record of tool calls, as rows."""
