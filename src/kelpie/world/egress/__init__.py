"""Network access of a cell: the broker and the proxy that checks every address."""
