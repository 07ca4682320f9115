"""The API of agents and what belongs to them, one module per resource. Each sees one organization only."""
