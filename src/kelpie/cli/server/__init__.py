"""The server of this data directory: finding, starting and stopping it."""
