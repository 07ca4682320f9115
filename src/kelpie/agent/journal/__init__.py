"""The journal of a turn: commits, the rows they write, and the repair of damaged histories."""
