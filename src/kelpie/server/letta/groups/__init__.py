"""Groups of agents: requests and responses."""
