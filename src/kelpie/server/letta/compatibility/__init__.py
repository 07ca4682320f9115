"""What clients of Letta expect and Kelpie answers differently or not at all."""
