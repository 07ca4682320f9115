"""The loop in small pieces: one loop for every agent type, one path for streaming and not streaming."""
