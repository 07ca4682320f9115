"""Agents as rows, with their owner, secrets, policies, identities and groups."""
