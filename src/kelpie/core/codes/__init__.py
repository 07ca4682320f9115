"""Codes of errors and log events, each with its meaning and what to do."""
