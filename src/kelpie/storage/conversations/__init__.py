"""Conversations, messages, approvals and the context that a model sees, as rows."""
