"""The way of a request into the server: limits, authentication, connections from sandboxes."""
