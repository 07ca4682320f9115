"""The simulation: the whole server inside one seeded, single-threaded loop of virtual time.

Everything here is an adapter of a port of `world`, or the machinery around it. Only tests and `cli/commands/sim` import
it.
"""
