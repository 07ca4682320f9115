"""The way out of a cell: the broker and the proxy that checks every address."""
