"""Routes and fields of Letta that Kelpie answers differently or not at all."""
