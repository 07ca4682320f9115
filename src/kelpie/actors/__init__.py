"""Virtual actors: one handler per key, loaded on first use, unloaded when idle. Knows nothing of agents."""
