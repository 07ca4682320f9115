"""Columns, checksums and paging that all tables share."""
