"""Anthropic's wire format."""
