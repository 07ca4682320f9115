"""Means of isolation on this machine: control groups, seccomp, and the probes that test them."""
