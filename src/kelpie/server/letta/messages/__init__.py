"""Messages to agents: requests, responses and streams."""
