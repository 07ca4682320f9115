"""The HTTP server: Letta's API, Kelpie's own resources, and the middleware around them."""
