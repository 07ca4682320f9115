"""Permissions, quotas and budgets of agents, and the record of tool calls, as values."""
