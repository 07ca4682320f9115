"""A rig in which every agent has a script of its own, for what agents do with each other."""

import asyncio
import json

from kelpie.core.agents.agent import NewAgent
from kelpie.core.conversations.messages import Role
from tests.agent.conftest import Rig, ScriptModel, says

ASK = "send_message_to_agent_and_wait_for_reply"
ASK_TAGGED = "send_message_to_agents_matching_tags"
TELL = "send_message_to_agent_async"


class ScriptedAgents(ScriptModel):
    """Plays the script of the agent that asks; `gates` hold an agent's model back."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = {}
        self.gates = {}
        self.waiting = {}  # agent -> an event that is set when its model is held

    def gate(self, agent_id) -> asyncio.Event:
        self.waiting[agent_id] = asyncio.Event()
        self.gates[agent_id] = asyncio.Event()
        return self.gates[agent_id]

    async def stream(self, request):
        self.requests.append(request)
        if gate := self.gates.get(request.user):
            self.waiting[request.user].set()
            await gate.wait()
        script = self.scripts.get(request.user)
        line = script.pop(0) if script else says("ok")
        if callable(line):
            line = line(request)
        if isinstance(line, Exception):
            raise line
        yield line


class MultiAgentRig(Rig):
    def __init__(self, path, **settings) -> None:
        super().__init__(path, **settings)
        self.model = ScriptedAgents()

    async def agent(self, name, *script, **fields):
        fields = {"include_multi_agent_tools": True, "include_base_tools": False, **fields}
        made = await self.kelpie.api().agents.create(NewAgent(name=name, **fields))
        self.model.scripts[made.agent.id] = list(script)
        return made.agent.id

    def script(self, agent_id, *lines) -> None:
        self.model.scripts[agent_id] = list(lines)

    def heard(self, agent_id) -> list[str]:
        """What the agent's model was last shown of what others said to it."""
        asked = [r for r in self.model.requests if r.user == agent_id]
        return [p.message.text for p in asked[-1].messages if p.message.role is Role.user]


def asks(other, words="hello"):
    return says("", (ASK, {"message": words, "other_agent_id": other}))


def asks_tagged(every=(), some=(), words="hello"):
    return says("", (ASK_TAGGED, {"message": words, "match_all": list(every), "match_some": list(some)}))


def tells(other, words="hello"):
    return says("", (TELL, {"message": words, "other_agent_id": other}))


def results(events):
    return [r for e in events if hasattr(e, "message") for r in e.message.tool_returns]


def read(result):
    return json.loads(result.text)
