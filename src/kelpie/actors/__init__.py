"""Virtual actors: one handler per key, loaded on first use, put away when idle. Knows nothing of agents."""
