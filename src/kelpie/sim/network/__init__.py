"""The simulated network and HTTP on it."""
