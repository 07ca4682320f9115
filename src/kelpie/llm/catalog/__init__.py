"""Known models with their traits and prices."""
