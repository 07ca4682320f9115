"""Memory blocks: requests and responses."""
