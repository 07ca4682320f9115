"""Search by words and by vectors: tokens, text index, vectors, ranking. Knows items, not what they are."""
