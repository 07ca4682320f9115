"""Tool calls of a turn: which are allowed, which need approval, how they run, and when they end the turn."""
