"""The wire form of MCP that client and server share: JSON-RPC messages, versions, headers, tasks. No I/O."""
