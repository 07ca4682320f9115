"""A program for simulated cells: an errand of a few steps, each of which asks something of our API.

Steps come as data, `[verb, whom, mark, line ...]`, from the arguments of the tool `errand` or as the code of
`run_code_with_tools`. What each was told is written down outside of every node, where no crash can reach it; the marks
are how it is found again on the disk.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kelpie.sim.asgi import Response
from kelpie.sim.cells import Inside
from kelpie.sim.loop import SimLoop
from kelpie.sim.network import ConnectionLost
from kelpie.sim.scenarios import sandboxed

NOTES = "notes"  # the block that code writes anew
LEDGER = "ledger"  # the one that it appends to, with a tool of its agent
LINGER_S = (0.0, 0.02)
LINGERS_MAX = 20
WITH_TOOLS = "run_code_with_tools"

SOURCE = '''
def errand(steps: list[list[str]]) -> str:
    """Does what it is told, step by step.

    Args:
        steps: what to do
    """
    return "done"
'''


class Verb(StrEnum):
    write = "write"  # a block of its own agent
    append = "append"  # to a block, with a tool of its agent
    outside = "outside"  # a tool of its agent that runs code in a cell of its own
    ask = "ask"  # another agent, and wait
    tell = "tell"  # another agent, and do not wait
    loop = "loop"  # the agent itself, or one that waits for it
    steal = "steal"  # write with the passport of another call
    pry = "pry"  # change what its agent is, which code may not
    linger = "linger"  # write on after the result is given


@dataclass(slots=True)
class Request:
    """One request of code, and what it was told: nothing at all while `status` is None."""

    verb: Verb
    mark: str
    agent_id: str
    whom: str
    inside: Inside
    began_s: float
    ended_s: float = 0.0
    status: int | None = None
    said: str = ""
    again: bool = False  # whether an SDK would send it again by itself

    @property
    def done(self) -> bool:
        """Whether it was told that it is done; an agent's turn that was cancelled, or a tool that failed, is not."""
        if self.status != 200:
            return False
        told = json.loads(self.said)
        if self.verb in (Verb.append, Verb.outside):
            return told["status"] == "success"
        return self.verb is not Verb.ask or told["stop_reason"]["stop_reason"] == "end_turn"

    @property
    def is_doubtful(self) -> bool:
        """Whether it may or may not be done, by what was told."""
        if self.status == 200:
            return not self.done and self.verb in (Verb.ask, Verb.outside)
        return self.status is None or (self.status >= 500 and not self.again)


@dataclass(slots=True)
class Errands:
    """All that code has asked in a run."""

    loop: SimLoop
    asked: list[Request] = field(default_factory=list[Request])
    passports: list[str] = field(default_factory=list[str])

    async def code(self, inside: Inside) -> str:
        """What runs in every cell. Raises ConnectionLost, OSError."""
        if inside.request.get("function") == "outside":
            return await sandboxed.code(inside)
        if (passport := inside.env["LETTA_API_KEY"]) not in self.passports:
            self.passports.append(passport)
        given = inside.arguments
        for step in given["steps"] if "steps" in given else json.loads(given["code"]):
            await self._take(inside, step)
        return "done"

    async def _take(self, inside: Inside, step: Sequence[str]) -> None:
        verb, whom, mark, lines = Verb(step[0]), step[1], step[2], step[3:]
        if verb is Verb.linger:
            inside.detach(self._linger(inside, whom, mark))
            return
        await self._ask(inside, verb, whom, mark, lines)

    async def _linger(self, inside: Inside, whom: str, mark: str) -> None:
        """Writes as long as it is let."""
        rng = self.loop.rng(f"linger/{mark}")
        for number in range(LINGERS_MAX):
            await asyncio.sleep(rng.uniform(*LINGER_S))
            await self._ask(inside, Verb.linger, whom, f"{mark}{number}.", ())

    async def _ask(self, inside: Inside, verb: Verb, whom: str, mark: str, lines: Sequence[str]) -> None:
        asked = Request(verb, mark, inside.env["LETTA_AGENT_ID"], whom, inside, self.loop.time())
        self.asked.append(asked)
        try:
            response = await _REQUESTS[verb](self, asked, "\n".join((mark, *lines)))
        except ConnectionLost:
            return
        asked.status, asked.said, asked.ended_s = response.status, response.body.decode(), self.loop.time()
        asked.again = response.headers.get("x-should-retry") != "false"
        await inside.told()

    def other_passport(self, mine: str) -> str:
        """One of a call that is over, or of another cell; without any, one that never was."""
        others = [each for each in self.passports if each != mine]
        return self.loop.rng(f"steal/{len(self.asked)}").choice(others) if others else "kelpie-passport_none"


def _own(asked: Request) -> str:
    return f"/v1/agents/{asked.agent_id}"


def _write(errands: Errands, asked: Request, text: str, passport: str | None = None) -> Awaitable[Response]:
    path = f"{_own(asked)}/core-memory/blocks/{NOTES}"
    return asked.inside.ask("PATCH", path, {"value": asked.mark}, passport=passport)


def _steal(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    return _write(errands, asked, text, errands.other_passport(asked.inside.env["LETTA_API_KEY"]))


def _pry(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    return asked.inside.ask("PATCH", _own(asked), {"name": asked.mark})


def _use(asked: Request, tool: str, arguments: Mapping[str, Any]) -> Awaitable[Response]:
    return asked.inside.ask("POST", f"{_own(asked)}/tools/{tool}/run", {"args": arguments})


def _append(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    return _use(asked, "memory_insert", {"label": LEDGER, "new_string": asked.mark})


def _outside(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    return _use(asked, "outside", {"mark": asked.mark})


def _send(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    return asked.inside.ask("POST", f"/v1/agents/{asked.whom}/messages", {"input": text})


def _tell(errands: Errands, asked: Request, text: str) -> Awaitable[Response]:
    said = {"messages": [{"role": "user", "content": text}]}
    return asked.inside.ask("POST", f"/v1/agents/{asked.whom}/messages/async", said)


_REQUESTS: Mapping[Verb, Callable[[Errands, Request, str], Awaitable[Response]]] = {
    Verb.write: _write,
    Verb.linger: _write,
    Verb.steal: _steal,
    Verb.pry: _pry,
    Verb.append: _append,
    Verb.outside: _outside,
    Verb.ask: _send,
    Verb.loop: _send,
    Verb.tell: _tell,
}


def line(steps: list[list[str]], *, with_tools: bool = False) -> str:
    """What a person says to have an errand run."""
    if with_tools:
        return f"call {WITH_TOOLS} {json.dumps({'code': json.dumps(steps)})}"
    return f"call errand {json.dumps({'steps': steps})}"


def is_ring(status: int, said: str) -> bool:
    return status == 503 or (status == 409 and "CYCLE" in said)


# What each kind of request may be refused with, beside having worked: storage that fails, and agents that are asked in
# a ring or have too much to do.
REFUSALS: Mapping[Verb, tuple[int, ...]] = {
    Verb.write: (503,),
    Verb.linger: (503,),
    Verb.append: (503,),
    Verb.outside: (503,),
    Verb.steal: (401,),
    Verb.pry: (403, 503),
    Verb.loop: (409, 503),
    Verb.ask: (409, 429, 500, 503),
    Verb.tell: (409, 429, 503),
}
