"""Cells: sandbox instances made with bubblewrap."""
