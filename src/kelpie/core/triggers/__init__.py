"""Triggers, which send messages to agents without a person: schedules with their firings, and webhooks, as values."""
