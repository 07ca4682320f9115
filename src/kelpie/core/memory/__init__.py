"""Blocks, passages, working memory and facts, as values."""
