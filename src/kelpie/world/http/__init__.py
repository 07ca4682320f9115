"""HTTP to other servers: the port, its aiohttp adapter, and the client of the command line."""
