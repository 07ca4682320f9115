"""Several agents together: messages between agents and group chats."""
