"""Checks that scenarios share: of the disk, of the memory of the server, and of what clients are told."""
