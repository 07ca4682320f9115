"""Sleeptime agents, which look after the memory of another agent."""
