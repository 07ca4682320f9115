"""The client of MCP: a session with one server, in the generation that it speaks, and what its answers mean."""
