"""Facts that an agent learns from its conversations."""
