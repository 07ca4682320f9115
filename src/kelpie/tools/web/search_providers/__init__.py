"""Providers of web search: their wire formats, and the limit on asking one."""
