"""Built-in tools that run code: in any of a few languages, with the agent's other tools at hand, as a command, or on
the agent's own files. All of it runs in cells of the sandbox; nothing here runs anything itself."""
