"""Conversations of an agent, their context windows, previews and cancelling."""
