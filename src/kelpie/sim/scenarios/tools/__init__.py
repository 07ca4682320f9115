"""Scenarios of tools: permissions, quotas, callbacks, messages between agents."""
