"""Commands about memory: blocks and passages."""
