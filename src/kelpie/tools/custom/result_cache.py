"""Cache of results of tools that are declared deterministic: bounded in number, size and time."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kelpie.core.ids import AgentId
from kelpie.core.time import MICROS_PER_SECOND, Micros
from kelpie.core.tools.tools import Tool
from kelpie.tools.calls.interface import Outcome
from kelpie.tools.custom.tool_environment import ToolEnvironment
from kelpie.world.clock import Clock

KEPT_US = 300 * MICROS_PER_SECOND
RESULTS_MAX = 1024
RESULT_CHARS_MAX = 64 * 1024
CHARS_MAX = 4 * 1024 * 1024  # of all together: a value takes many times the memory of its text


class ResultCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[Micros, Outcome]] = OrderedDict()
        self._chars = 0

    def get(self, key: str) -> Outcome | None:
        """A result that is not too old, if there is one."""
        found = self._kept.get(key)
        if found is None:
            return None
        since, outcome = found
        if not 0 <= self._clock.now() - since < KEPT_US:
            self._evict(key)
            return None
        self._kept.move_to_end(key)
        return outcome

    def put(self, key: str, outcome: Outcome) -> None:
        """Caches a result, unless it is a failure or too long. Its resource use counts once and is not cached."""
        if not outcome.ok or _chars(outcome) > RESULT_CHARS_MAX:
            return
        self._evict(key)
        self._kept[key] = (self._clock.now(), replace(outcome, cpu_us=0, memory_peak_bytes=0))
        self._chars += _chars(outcome)
        while len(self._kept) > RESULTS_MAX or self._chars > CHARS_MAX:
            self._evict(next(iter(self._kept)))

    def _evict(self, key: str) -> None:
        if (found := self._kept.pop(key, None)) is not None:
            self._chars -= _chars(found[1])


def _chars(outcome: Outcome) -> int:
    return sum(len(text) for text in (outcome.text, *(outcome.stdout or ()), *(outcome.stderr or ())))


def result_key(tool: Tool, agent_id: AgentId, around: ToolEnvironment, arguments: Mapping[str, Any]) -> str:
    """Everything that must be the same for a result to be the same: the tool's version, the agent, the arguments and
    the environment.
    """
    said = [tool.id, tool.version, agent_id, around.env, around.state, dict(arguments)]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
