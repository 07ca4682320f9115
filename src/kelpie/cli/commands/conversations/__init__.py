"""Commands about conversations: chat, messages, approvals and runs."""
