"""The agent, its groups, deployments and settings, as values."""
