"""Commands about agents: their definition, permissions and checkpoints."""
