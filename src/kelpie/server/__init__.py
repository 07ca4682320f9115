"""The HTTP server: Letta's API, our own resources, and what every request passes."""
