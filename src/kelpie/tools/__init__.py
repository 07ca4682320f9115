"""Tools: what agents may call, how a call is checked, and the tools that come with Kelpie."""
