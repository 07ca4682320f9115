"""The state of a loaded agent: its conversations, permissions, spending and pauses."""
