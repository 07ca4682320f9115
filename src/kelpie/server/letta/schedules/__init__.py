"""Schedules of an agent: requests and responses."""
