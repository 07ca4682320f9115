"""Snapshots: sessions of requests with everything the server answers, asks the model and stores, as text files.

    python -m tests.snapshots                          # records every file anew
    python -m tests.snapshots tests/snapshots/runs     # the files of a folder, or a single one

Read the difference before you commit it: whatever is recorded passes, also what is wrong.

The server runs in the simulation without faults, so the same session always gives the same text. A line that begins
with `>` is written by hand; all others are recorded.
"""
