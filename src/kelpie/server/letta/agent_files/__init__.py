"""Agent files: export and import of agents as Letta's `.af` files."""
