"""Transports of MCP: streamable HTTP, the older HTTP with server-sent events, and standard input and output."""
