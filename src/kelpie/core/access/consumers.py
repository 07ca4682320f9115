"""Consumers of what a server shares: an organization, and the agent in it on whose behalf something is used. Pure."""

from typing import NamedTuple


class Consumer(NamedTuple):
    """An organization and one of its agents; work for no agent in particular has the empty one."""

    organization: str
    agent: str = ""


SERVER = Consumer("")  # work of the server itself, for no organization
