"""Commit of extracted facts: entities, facts in their places, the record of the model calls, and the progress through
the conversation. All of it is one commit."""

from dataclasses import replace

from kelpie.agent.facts.model_answer import ExtractedFact
from kelpie.agent.facts.model_question import Call, Material, Reading
from kelpie.agent.journal import run_endings
from kelpie.agent.journal.message_rows import answered_by, named_after, step_record
from kelpie.core.agents.agent import Agent
from kelpie.core.conversations.messages import Message
from kelpie.core.conversations.runs import Run, RunStatus, Step, StepStatus, StopReason
from kelpie.core.dates import dates
from kelpie.core.errors import ToolError
from kelpie.core.ids import FactId, RunId, StepId
from kelpie.core.memory.fact_timeline import StatedFact
from kelpie.core.memory.facts import Entity, Fact, FactQuery, FactSearch, FactState, key
from kelpie.core.time import Micros
from kelpie.memory.embeddings import Embeddings
from kelpie.search import vector_rows
from kelpie.storage.conversations import fact_progress
from kelpie.storage.memory import entities, facts
from kelpie.world.database import Tx
from kelpie.world.world import World

RUN_TYPE = "kelpie_fact_extraction"
KNOWN_MAX = 40  # known facts in the prompt, so that the model uses the same names


class FactCommit:
    def __init__(self, world: World, embeddings: Embeddings) -> None:
        self._world = world
        self._embeddings = embeddings

    async def before(self, agent: Agent, said: tuple[Message, ...]) -> Material:
        """Material for the model: the messages, and the facts that are known already. Raises StorageError."""
        now = self._world.clock.now()
        words = " ".join(message.said for message in reversed(said))

        def read(tx: Tx) -> dict[str, Fact]:
            alike = facts.search(tx, agent.id, FactSearch(words, KNOWN_MAX // 2, "fts", now), now)
            newest = facts.select_facts(tx, agent.id, FactQuery(KNOWN_MAX, at=now))
            return {fact.id: fact for fact in (*(found.fact for found in alike), *newest)}

        known = await self._world.database.read(read)
        return Material(said, tuple(known.values())[:KNOWN_MAX])

    async def commit(self, agent: Agent, state: FactState, after: FactState, reading: Reading) -> bool:
        """Writes everything. False when another extraction has, or the history is gone. Raises StorageError."""
        now = self._world.clock.now()
        told = [self._stated_fact(agent, reading, heard, now) for heard in reading.heard.facts]
        met = [Entity(each.name, each.kind, now, now, each.aliases) for each in reading.heard.entities]
        used = await self._world.database.read(lambda tx: vector_rows.models_of(tx, "fact", (agent.id,)))
        wanted = (used.get(agent.id), agent.embedding or await self._embeddings.default())
        statements = [each.fact.statement for each in told]
        meant = await self._embeddings.of_stored(wanted, statements, agent.consumer) if told else None
        run, calls = self._record(agent, reading.calls, now)

        def write(tx: Tx) -> bool:
            if not fact_progress.change(tx, state, after):
                return False
            known = entities.of_agent(tx, agent.id)
            for entity in met:
                same = entities.record_mention(tx, agent.id, known, entity)
                known = [same, *(one for one in known if one.name != same.name)]
            names = {one: entity.name for entity in reversed(known) for one in entity.keys}
            for each in told:
                fact = replace(each.fact, subject=names.get(key(each.fact.subject), each.fact.subject))
                facts.learn(tx, replace(each, fact=fact), meant.vectors.get(fact.statement, ()) if meant else ())
            run_endings.write_outside_turn(tx, run, calls, agent.organization_id)
            return True

        return await self._world.database.transact(write)

    def _stated_fact(self, agent: Agent, reading: Reading, heard: ExtractedFact, now: Micros) -> StatedFact:
        sources = [reading.said[number - 1] for number in heard.sources if 0 < number <= len(reading.said)]
        said_at = min((message.created_at for message in sources), default=reading.said[-1].created_at)
        since, ends = (_moment(text, agent.timezone, said_at) for text in (heard.valid_from, heard.valid_until))
        number = heard.replaces or 0
        known = reading.known[number - 1] if 0 < number <= len(reading.known) else None
        fact = Fact(
            id=self._world.ids.new(FactId),
            agent_id=agent.id,
            subject=heard.subject if known is None else known.subject,
            attribute=heard.attribute if known is None else known.attribute,
            value=heard.value,
            statement=heard.statement,
            valid_from=said_at if since is None else since,
            recorded_at=now,
            seen_at=said_at,
            exclusive=heard.exclusive if known is None else known.exclusive,
            confidence=heard.confidence,
            link=heard.link,
            sources=tuple(message.id for message in sources),
        )
        return StatedFact(fact, self._world.ids.new(FactId), ends, known.id if known else None)

    def _record(self, agent: Agent, calls: tuple[Call, ...], now: Micros) -> tuple[Run, list[Step]]:
        """A run that is over, with a step for each call."""
        began = min((call.at for call in calls), default=now)
        run = Run(self._world.ids.new(RunId), agent.id, RunStatus.running, began, metadata={"run_type": RUN_TYPE})
        made = [self._step(agent, run, call) for call in calls]
        return run_endings.outside_turn(run, made, now), made

    def _step(self, agent: Agent, run: Run, call: Call) -> Step:
        step = step_record(run, agent, self._world.ids.new(StepId), StepStatus.success, call.at)
        step = answered_by(named_after(step, call.handle), call.reply)
        return replace(
            step, usage=call.reply.usage, stop_reason=StopReason.end_turn, llm_ns=call.took_ns, step_ns=call.took_ns
        )


def _moment(text: str | None, timezone: str, now: Micros) -> Micros | None:
    """The time that a model wrote; None for what is no time."""
    if text is None:
        return None
    try:
        return dates.bounds(("valid_from", text), ("valid_until", None), dates.zone_of(timezone), now)[0]
    except ToolError:
        return None
