"""Tools and sandbox configurations: requests and responses."""
