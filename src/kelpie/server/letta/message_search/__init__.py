"""Search in messages."""
