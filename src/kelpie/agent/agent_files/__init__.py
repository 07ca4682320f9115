"""Agent files: the plan of an import, and the tools it needs."""
