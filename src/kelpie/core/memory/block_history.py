"""The history of a memory block: its author, time, turn and tool, and the value, of every change.

Every version of a block is one change; versions are numbered without a gap, and the number of stored versions is
bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kelpie.core.access.callers import Caller
from kelpie.core.ids import BlockId
from kelpie.core.time import Micros

VERSIONS_SHOWN_MAX = 1000  # in one listing


class AuthorKind(StrEnum):
    agent = "agent"
    user = "user"
    key = "key"  # a user through an API key or an access token
    system = "system"  # Kelpie itself
    unknown = "unknown"  # the record of it is damaged


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change to a block. `id` is the agent or the user; run, step and tool are those of an agent's
    turn."""

    kind: AuthorKind
    id: str | None = None
    key_id: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Author and time of a change; `restores` is the version that the change restores, if any."""

    by: Author
    at: Micros
    kept: int  # versions of the block, this one included
    restores: int | None = None


@dataclass(frozen=True, slots=True)
class BlockVersion:
    """A block as it was after one change. `fields` are the fields besides the value that the change set, by name."""

    block_id: BlockId
    version: int
    at: Micros
    by: Author
    chars: int  # of the value
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    restores: int | None = None
    value: str = ""  # not read for a listing
    lost: bool = False  # its row was damaged on the disk: nothing but its number is known


def author_of(caller: Caller) -> Author:
    """The author of a change that a caller makes through the API: for the code of a tool, the agent that called it."""
    if (shown := caller.passport) is not None:
        return Author(AuthorKind.agent, shown.agent_id, None, shown.run_id, shown.step_id, shown.tool)
    kind = AuthorKind.user if caller.key_id is None else AuthorKind.key
    return Author(kind, caller.user_id, caller.key_id)
