"""HTTP exchanges with providers, shared by all wire formats."""
