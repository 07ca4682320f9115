"""Logs for operators: structured events, redaction of secrets, and how a line is written."""
