"""The way of a request to its endpoint: routers, the index of routes, and the parameters of an endpoint."""
