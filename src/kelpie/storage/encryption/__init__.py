"""Encryption of stored secrets: known keys, sealed columns, and the batches of a rotation."""
