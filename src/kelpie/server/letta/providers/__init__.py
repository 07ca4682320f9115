"""Model providers that an organization adds with its own keys: requests and responses."""
