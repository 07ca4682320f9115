"""The mask that stands for a secret in answers. Sent back, it keeps the stored value."""

MASK = "********"
