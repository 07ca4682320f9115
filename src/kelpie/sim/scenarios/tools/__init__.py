"""Scenarios of tools: permissions, quotas, fairness, callbacks, messages between agents."""
