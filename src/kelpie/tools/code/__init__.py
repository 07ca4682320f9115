"""Built-in tools that run code: in one of a few languages, with access to the agent's other tools, as a command, or on
the agent's own files. All of it runs in cells of the sandbox; nothing here runs anything itself.
"""
