"""Triggers: schedules and webhooks, which send messages to agents without a person."""
