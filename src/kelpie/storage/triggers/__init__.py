"""Triggers as rows: schedules, their firings, and webhooks."""
