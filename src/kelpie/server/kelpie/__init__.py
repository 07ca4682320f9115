"""Resources that are Kelpie's own and not part of Letta's API; all marked (Kelpie)."""
