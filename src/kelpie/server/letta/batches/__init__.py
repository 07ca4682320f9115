"""Batches of messages, and of agents to create or delete: requests and responses."""
