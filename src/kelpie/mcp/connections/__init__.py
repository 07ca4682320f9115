"""Connections to MCP servers: made on first use, kept while they are used, and left alone while they keep failing."""
