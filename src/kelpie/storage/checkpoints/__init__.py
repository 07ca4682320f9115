"""Checkpoints: the whole memory of an agent as one document, written and read back."""
