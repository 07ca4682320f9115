"""Tools and how they are confined, as values."""
