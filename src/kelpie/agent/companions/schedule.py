"""Schedule of companions: decided in the commit that ends a turn, which also writes the companion's run.

So the count of turns and the run that follows from it are one commit: a crash neither loses a run of the companion nor
doubles it. Agents without a companion never come here.
"""

from dataclasses import dataclass

from kelpie.agent.companions import transcript_lines
from kelpie.agent.companions.companions import BUFFER_MAX, BUFFER_MIN
from kelpie.core.agents.agent import Agent
from kelpie.core.agents.groups import Group, ManagerType
from kelpie.core.conversations.agent_chain import AgentChain
from kelpie.core.conversations.messages import Message, MessageQuery, NewMessage, Role
from kelpie.core.conversations.runs import MAX_STEPS_DEFAULT, Run, RunStatus, StopReason
from kelpie.core.ids import AgentId, MessageId, RunId
from kelpie.core.time import Micros
from kelpie.storage.agents import agents, groups
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.conversations import contexts, message_search, messages
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from kelpie.tools.calls.stable_ids import stable_uuid
from kelpie.world.database import Tx

RUN_TYPE = "sleeptime_agent_send_message_async"
ROWS_MAX = 500  # of a history that one look covers; the newest
BACKLOG_MAX = 8  # looks that may wait for one companion; further ones are put together with the next
_UNFINISHED = frozenset({StopReason.requires_approval, StopReason.cancelled, StopReason.error})


@dataclass(frozen=True, slots=True)
class CompanionWork:
    """Work that follows from a turn: runs for the companions; `trimmed` if messages have left the agent's context."""

    begun: tuple[Run, ...] = ()
    trimmed: bool = False

    @property
    def run_ids(self) -> tuple[RunId, ...]:
        return run_ids(self.begun)


NOTHING = CompanionWork()


def after_turn(tx: Tx, agent: Agent, run: Run, chain: AgentChain, conversation: str) -> CompanionWork:
    """Counts a turn that has just ended, and writes runs for the companions when they are due."""
    if run.stop_reason in _UNFINISHED or (group := groups.background_of(tx, agent.id)) is None:
        return NOTHING
    message_search.join_group(tx, run.id, group.id)
    if chain.is_spent:  # companions of each other would go on for ever
        return NOTHING
    if group.manager.type is ManagerType.voice_sleeptime:
        return _after_voice(tx, agent, group, run, chain, conversation)
    return _after_counted(tx, agent, group, run, chain)


def _after_counted(tx: Tx, agent: Agent, group: Group, run: Run, chain: AgentChain) -> CompanionWork:
    every = group.manager.sleeptime_agent_frequency or 1
    before = -1 if group.turns_counter is None else group.turns_counter
    count = (before + 1) % every
    ready = _ready(tx, agent, group)
    changes: dict[str, int | str] = {"turns_counter": count}
    begun: tuple[Run, ...] = ()
    if count == 0 and ready:
        rows = _since(tx, agent, group, run)
        changes["last_processed_message_id"] = rows[-1].id
        begun = _begin(tx, agent, ready, run, chain, transcript_lines.for_sleeptime(agent, rows))
    groups.change(tx, group.id, changes)
    return CompanionWork(begun)


def _after_voice(tx: Tx, agent: Agent, group: Group, run: Run, chain: AgentChain, conversation: str) -> CompanionWork:
    """One that speaks by voice keeps few messages in sight; what it loses sight of, its companion files."""
    manager = group.manager
    most, least = manager.max_message_buffer_length, manager.min_message_buffer_length
    most, least = BUFFER_MAX if most is None else most, BUFFER_MIN if least is None else least
    seen = contexts.ids(tx, agent.id, conversation)
    first = messages.get_many(tx, seen[:1])
    head = 1 if first and first[0].role is Role.system else 0
    if len(seen) - head <= most or not (ready := _ready(tx, agent, group)):
        return NOTHING
    said = messages.get_many(tx, seen[head:])
    start = next((i for i in range(max(len(said) - least, 0), len(said)) if said[i].role is Role.user), len(said))
    if start == 0:
        return NOTHING
    kept: list[MessageId] = [*seen[:head], *(message.id for message in said[start:])]
    contexts.replace(tx, agent.id, kept, conversation)
    groups.change(tx, group.id, {"last_processed_message_id": said[start - 1].id})
    begun = _begin(tx, agent, ready, run, chain, transcript_lines.for_voice(agent, said[:start]))
    return CompanionWork(begun, trimmed=True)


def _ready(tx: Tx, agent: Agent, group: Group) -> list[AgentId]:
    """The companions that can be given something to do."""
    found = agents.get_many(tx, agent.organization_id, [one for one in group.agent_ids if one != agent.id])
    return [one.id for one in found if not one.stopped and runs.count_created(tx, one.id) < BACKLOG_MAX]


def _since(tx: Tx, agent: Agent, group: Group, run: Run) -> list[Message]:
    """Messages since the companion's last run; if it had none, or its last message is gone, those of this turn."""
    after = group.last_processed_message_id
    known = messages.get_many(tx, [after]) if after is not None else []
    if known and known[0].agent_id == agent.id:
        return messages.select_of_agent(tx, agent.id, MessageQuery(ROWS_MAX, after=known[0].id))
    return messages.of_run(tx, run.id)


def _begin(
    tx: Tx, agent: Agent, companions: list[AgentId], run: Run, chain: AgentChain, transcript: NewMessage
) -> tuple[Run, ...]:
    assert run.completed_at is not None
    begun = tuple(_run(run, companion, run.completed_at) for companion in companions)
    for one in begun:
        given = RunInput((transcript,), MAX_STEPS_DEFAULT, chain=chain.without_waiting())
        runs.open_run(tx, one, agent.organization_id, given, NOBODY)
    return begun


def _run(after: Run, companion: AgentId, at: Micros) -> Run:
    return Run(
        id=RunId(f"run-{stable_uuid(after.id, companion)}"),  # the same every time, should the commit be tried again
        agent_id=companion,
        status=RunStatus.created,
        created_at=at,
        background=True,
        metadata={"run_type": RUN_TYPE, "agent_id": companion},
    )


def run_ids(begun: tuple[Run, ...]) -> tuple[RunId, ...]:
    """Those of companions, among the runs that a commit has begun."""
    return tuple(run.id for run in begun if run.metadata.get("run_type") == RUN_TYPE)


def begun_after(tx: Tx, agent: Agent, run: Run) -> tuple[Run, ...]:
    """The runs that the end of this one has begun, read back."""
    group = groups.background_of(tx, agent.id)
    at = run.completed_at
    if group is None or at is None:
        return ()
    return tuple(one for c in group.agent_ids if runs.exists(tx, (one := _run(run, c, at)).id))
