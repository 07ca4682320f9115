"""Histories of clients that send them again with every request: which conversation each belongs to."""
