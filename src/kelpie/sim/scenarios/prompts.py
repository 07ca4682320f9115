"""What the model was shown, read back from the requests that reached it: which step asked, and what the prompt held."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kelpie.sim.llm import Seen
from kelpie.sim.scenarios.people import Heard


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, and the earliest moment at which its step can have begun."""

    agent_id: str
    began_s: float
    seen_s: float
    system: str
    tools: tuple[dict[str, Any], ...]
    said: tuple[str, ...]  # the tokens of what people said in it
    temperature: float | None = None

    def block(self, label: str, part: str = "value") -> str | None:
        """A part of a memory block; None where the prompt has no such block."""
        block = element(self.system, label)
        return None if block is None else element(block, part)

    def tool(self, name: str) -> str | None:
        """The description of a tool on offer; None where it is not offered."""
        return next((tool["description"] for tool in self.tools if tool["name"] == name), None)


def prompts(seen: Iterable[Seen], heard: Iterable[Heard]) -> Iterator[Prompt]:
    """Every prompt once: the same request again is a retry of the same step."""
    called = {each.said.token: each.said.called_s for each in heard}
    last: dict[str, float] = {}
    known: set[str] = set()
    for request in seen:
        body = json.dumps(request.body)
        if body in known:
            continue
        known.add(body)
        system, *rest = request.body["messages"]
        said = tuple(word for message in rest if (word := _token(message)) in called)
        began_s = last.get(said[-1], called[said[-1]])
        last[said[-1]] = request.at_s
        tools = tuple(tool["function"] for tool in request.body.get("tools") or ())
        agent_id, temperature = str(request.body.get("user")), request.body.get("temperature")
        yield Prompt(agent_id, began_s, request.at_s, system["content"], tools, said, temperature)


def element(text: str, name: str) -> str | None:
    """What stands between the tags of this name."""
    _, start, rest = text.partition(f"<{name}>\n")
    return rest.partition(f"\n</{name}>")[0] if start else None


def _token(message: dict[str, object]) -> str:
    return str(message.get("content")).split("\n")[0] if message.get("role") == "user" else ""
