"""Models: requests and responses."""
