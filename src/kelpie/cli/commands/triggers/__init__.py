"""Commands about triggers: schedules and webhooks."""
