"""Scenarios of triggers: schedules and webhooks while servers crash, compete and lose their clocks."""
