"""Templates: definitions of agents that are saved in versions, and from which agents are made."""
