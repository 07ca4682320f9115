"""Schedules of all agents, their firings, and webhooks (Kelpie)."""
