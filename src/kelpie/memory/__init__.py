"""Memory of agents: blocks and their edits, archives, working memory, facts, and the search in them."""
