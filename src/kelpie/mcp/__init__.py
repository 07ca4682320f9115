"""The Model Context Protocol: its messages, and the client with which Kelpie calls the tools of other servers."""
