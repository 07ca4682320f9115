"""The text index: tokens, postings, segments, BM25."""
