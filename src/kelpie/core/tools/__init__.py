"""Tools and their confinement, as values."""
