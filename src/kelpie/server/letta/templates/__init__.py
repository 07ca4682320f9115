"""Templates: requests and responses."""
