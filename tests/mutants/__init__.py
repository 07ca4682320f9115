"""Mutation testing: changes the product in one place, runs the tests that reach it, and lists what none noticed.

    python -m pytest -p tests.mutants.recorder -n 2 tests/core tests/agent      # which test reaches which function
    python -m tests.mutants src/kelpie/agent/turn --sample 50                   # plants 50 changes and prints survivors
    python -m tests.mutants src/kelpie/agent/turn --sim --seconds 60            # what the simulation alone notices
    python -m tests.mutants --patch 01.patch --seconds 600                      # a bug that somebody wrote

It finds places that no test looks at. It proves nothing about the product, and `make test` does not run it.
"""
