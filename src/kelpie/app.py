"""The composition root: the only place that builds adapters and wires the rooms together."""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kelpie.accounts.authentication import Authenticator
from kelpie.accounts.passports import Passports
from kelpie.actors.background import endless
from kelpie.actors.dispatcher import Dispatcher
from kelpie.actors.limits import ActorLimits
from kelpie.agent.definition.creation import check_timezone
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.facts.extractor import FactExtractor
from kelpie.agent.inbox.background_runs import Backstage
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.maintenance.approval_expiry import ApprovalExpiry
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.agent.maintenance.run_callbacks import RunCallbacks
from kelpie.agent.multi_agent.messaging_tools import MessagingTools
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.turn.activation import Activation
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.api import Api, open_api
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.conversations.runs import Run
from kelpie.core.errors import AgentStopped, ConfigurationError, InvalidInput, KelpieError
from kelpie.core.ids import AgentId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.llm.provider.interface import Provider
from kelpie.llm.routing.models import Models
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.sandbox.process import ProcessSandbox
from kelpie.search.items import NearestItems
from kelpie.storage.accounts import accounts
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.runs import steps, unfinished
from kelpie.storage.runs.traces import Tracing
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.storage.schema import ensure_schema
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import ExternalTool
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.tools.code.code_tools import code_tools
from kelpie.tools.custom.environments import Environments
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.registry.writes import ensure_builtins, log_shadowed
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.clock import SystemClock
from kelpie.world.egress.broker import Broker, LocalBroker
from kelpie.world.embedding.minilm import MiniLm
from kelpie.world.files import password_file
from kelpie.world.files.data_dir import DataDir
from kelpie.world.files.workspaces import DirectoryWorkspaces
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import RandomIds
from kelpie.world.packages.store import LocalPackages, Packages
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.sqlite.database import SqliteDatabase
from kelpie.world.world import World

DATABASE_FILE = "kelpie.db"
PACKAGES_DIR = "packages"  # of tools
NODE_ID = "local"  # one server owns the embedded database; the cluster will name its nodes
RECOVERIES_AT_ONCE = 8
RECOVER_EVERY_S = 15.0
CALLERS_KEPT = 1024  # doors are small and cheap to make; this only spares making them for every request
DAY = 24 * 3600 * MICROS_PER_SECOND
_NEVER = 2**62

_log = logs.get("app")


class Kelpie:
    """A running Kelpie: one door per kind of thing."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        *,
        providers: Sequence[Provider] | None = None,
        external: ExternalTool | None = None,
        packages: Packages | None = None,
        finder: NearestItems | None = None,
        data_dir: DataDir | None = None,
        password_kept: str | None = None,
    ) -> None:
        self.world = world
        self.settings = settings
        self.data_dir = data_dir
        self._node: Node | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._upkeep = Cleanup(world, settings.stream_kept_s)
        self._embedding: asyncio.Task[None] | None = None
        self.models = Models(world, settings, providers)
        self.meaning = Embeddings(self.models, settings, finder)
        self.dispatcher: Dispatcher[Activation] = Dispatcher(
            activate=self._activate,
            deactivate=self._deactivate,
            clock=world.clock,
            rng=world.random,
            limits=_limits(settings),
            observe=_observe,
        )
        self.pauses = Pauses(world.clock)
        self._learning: asyncio.Task[None] | None = None
        self._extraction = FactExtractor(world, self.models, self.meaning, self.pauses, self._recount, settings.policy)
        self._meetings = RunningChats()
        self.underway = ActiveTurns()
        self.waits = WaitGraph(settings.sandbox_cells_max)
        self.gate = Authenticator(world, settings, password_kept)
        self.passports = Passports(world.ids, world.clock)
        self.callback = ApiCallback(self.passports, world.clock)  # for code of tools: the way back to our API
        self.broker = LocalBroker(private=settings.egress_private)  # answers what comes out of cells
        self.sandbox = _sandbox(world, settings, self.broker)
        self._wanted = asyncio.Event()  # recovery, soon
        self._broadcast = RunNotifier()
        self._callbacks = RunCallbacks(world, settings)
        self.backlog = RunQueue(self.dispatcher, self._wanted.set, self._callbacks.wake)
        self._environments = Environments(packages)
        self.workbench = self._workbench()
        self._apis: OrderedDict[Caller, Api] = OrderedDict()
        own = self.api(DEFAULT_CALLER)
        self.agents, self.blocks, self.tools, self.runs = own.agents, own.blocks, own.tools, own.runs
        self.histories, self.sending = own.histories, own.sending
        self._expiry = ApprovalExpiry(
            world, self.backlog, own.agents.forgotten, settings.approval_s, settings.max_steps
        )
        self._equipment = TurnDependencies(
            world,
            self.models,
            external or self.workbench,
            self.agents.touched,
            self.pauses,
            self.underway,
            Precompute(world.database, self.meaning),
            settings.block_rules,
            settings.context_window,
            _tracing(settings),
            self._outside(),
            summon=self._summon,
            learn=self._extraction.wake,
            broadcast=self._broadcast,
            working_memory=settings.working_memory,
            policy=settings.policy,
            recount=self._recount,
        )
        world.database.when_in_doubt(self._look_again)

    def _workbench(self) -> CustomToolRunner | None:
        if self.sandbox is None:
            return None
        return CustomToolRunner(self.world, self.sandbox, self._environments, self.callback)

    def _outside(self) -> Mapping[str, ExternalTool]:
        """The built-in tools that run outside of commits."""
        world, settings = self.world, self.settings
        return {
            **MessagingTools(world, self.dispatcher, self.waits, settings).tools(),
            **code_tools(world, self.sandbox, self.callback, self._environments, settings.workspace_mb_max),
        }

    def api(self, caller: Caller) -> Api:
        """What this caller may reach."""
        found = self._apis.get(caller)
        if found is None:
            found = open_api(
                caller,
                self.world,
                self.settings,
                self.models,
                self.dispatcher,
                self.pauses,
                Backstage(self.backlog, self._broadcast),
                self.underway,
                self.waits,
                self.meaning,
                self.gate.forget,
                self._meetings,
                lambda: self._equipment,
                self.workbench,
            )
            self._apis[caller] = found
            if len(self._apis) > CALLERS_KEPT:
                self._apis.popitem(last=False)
        self._apis.move_to_end(caller)
        return found

    async def start(self) -> None:
        """Brings the schema up, enters the membership, and begins to finish what an earlier life left open."""
        database = self.world.database
        await ensure_schema(database, back_up=database.back_up if isinstance(database, SqliteDatabase) else None)
        await self._furnish()
        if self.models.counts_money:
            since = self.world.clock.now() - DAY
            self.models.remember(await database.read(lambda tx: steps.spent_since(tx, since)))
        self._node = await database.transact(lambda tx: ownership_fence.join(tx, NODE_ID, "", _NEVER))
        embedding = EmbeddingBacklog(self.world, self.meaning, self.underway.has_any)
        self._recovery = asyncio.create_task(endless(self._keep_recovering, "recovery and upkeep"))
        self._telling = asyncio.create_task(endless(self._callbacks.run, "the sending of callbacks"))
        self._embedding = asyncio.create_task(endless(embedding.run, "the embedding of what was stored"))
        self._learning = asyncio.create_task(endless(self._extraction.run, "the learning of facts"))

    async def stop(self, drain_s: float) -> None:
        """Lets running turns finish within a bound and closes everything."""
        for task in (self._recovery, self._embedding, self._learning):
            if task is not None:
                task.cancel()
        await self._meetings.close()
        await self.dispatcher.close(drain_s)
        if self._telling is not None:
            self._telling.cancel()
        if self.workbench is not None:
            await self.workbench.close()
        if self.sandbox is not None:
            await self.sandbox.close()
        await self.models.close()
        await self.gate.close()
        if self.world.embedder is not None:
            await self.world.embedder.close()
        await self.world.database.close()
        if self.data_dir is not None:
            self.data_dir.close()

    async def _furnish(self) -> None:
        """Sees to the organisation and the user that are always there, and to every organisation's built-in tools."""
        database, now = self.world.database, self.world.clock.now()
        await database.transact(partial(accounts.ensure_defaults, now=now))
        for organization in await database.read(accounts.organization_ids):
            found, _ = await database.transact(partial(ensure_builtins, organization=organization, now=now))
            log_shadowed(found)

    async def _activate(self, key: str) -> Activation:
        assert self._node is not None, "start() comes first"
        return await Activation.load(self._equipment, self._node, AgentId(key))

    async def _deactivate(self, activation: Activation) -> None:
        """Nothing to save: all that an activation holds is committed."""

    def _summon(self, waiting: Iterable[Run]) -> None:
        """Lets agents take up runs that were stored for them."""
        for run in waiting:
            self.backlog.submit(StoredRun(run.id, run.agent_id, run.conversation_id))

    def _recount(self, agent_id: AgentId) -> None:
        """Tells a live agent that something was spent for it."""
        self.dispatcher.notify(agent_id, Activation.recount)

    def _look_again(self) -> None:
        """Something was perhaps written and nobody can say what: every live agent reads itself anew before it goes on.

        This is the one place for all doors. Whoever sends such an edit again may be told that there is nothing to do,
        and then nobody would be told of the change by name.
        """
        _log.warning("commit_outcome_unknown", "Commit outcome unknown; reloading live agents")
        self.dispatcher.notify_all(Activation.forget_context)
        self.gate.forget()

    async def _keep_recovering(self) -> None:
        """At the start, and again and again: a disk that fails for a while leaves turns behind as a crash does."""
        while True:
            try:
                await self._recover()
                await self._upkeep.sweep()
                await self._expiry.sweep()
            except KelpieError as error:
                _log.error("recovery_failed", "Recovery and cleanup failed; trying again later", error=str(error))
            await self._pause()

    async def _pause(self) -> None:
        """Until the next round of recovery is due, or somebody wants one."""
        try:
            async with asyncio.timeout(RECOVER_EVERY_S):
                await self._wanted.wait()
        except TimeoutError:
            pass
        self._wanted.clear()

    async def _recover(self) -> None:
        """Goes on with, or closes, every turn that nobody works on any more, a few at a time."""
        for waiting in await self.world.database.read(unfinished.in_background):
            self.backlog.submit(waiting)
        left = await self.world.database.read(unfinished.agents_with_unfinished)
        places = asyncio.Semaphore(RECOVERIES_AT_ONCE)

        async def one(agent_id: AgentId) -> None:
            async with places:
                try:
                    await self.agents.recover(agent_id)
                except AgentStopped:
                    return  # its turns were closed while loading
                except KelpieError as error:
                    _log.error(
                        "agent_recovery_failed",
                        "Interrupted turns of an agent could not be resumed; trying again later",
                        agent_id=agent_id,
                        error=str(error),
                    )

        await asyncio.gather(*(one(agent_id) for agent_id in left))


def _limits(settings: Settings) -> ActorLimits:
    return ActorLimits(
        mailbox_size=settings.mailbox_size,
        hot_max=settings.hot_agents_max,
        idle_s=settings.idle_s,
        place_wait_s=settings.hot_wait_s,
        activate_s=settings.load_s,
        drain_s=settings.drain_s,
    )


def _sandbox(world: World, settings: Settings, broker: Broker) -> ProcessSandbox | None:
    """None where nothing can hold code that is not ours; then such code is refused."""
    if world.cells is None:
        return None
    return ProcessSandbox(
        world.cells,
        world.clock,
        broker,
        cells_max=settings.sandbox_cells_max,
        waiting_max=settings.sandbox_waiting_max,
        warm_max=settings.sandbox_warm_max,
    )


def _warn_of_no_walls(reason: str) -> None:
    _log.warning("isolation_missing", "Tool code runs without isolation, as sandbox.isolation allows", reason=reason)


def _tracing(settings: Settings) -> Tracing | None:
    return Tracing(settings.trace_steps, settings.trace_bytes_max) if settings.trace_steps else None


def _observe(transition: StateTransition) -> None:
    facts = {"agent_id": transition.key, "before": transition.before.value, "after": transition.after.value}
    if transition.after is ActivationState.failed:
        _log.warning(
            "agent_failed", "Agent failed; it is loaded again when it is next used", reason=transition.reason, **facts
        )
    else:
        _log.debug("agent_state_changed", "Agent changed its state", reason=transition.reason, **facts)


def open_kelpie(settings: Settings) -> Kelpie:
    """A Kelpie on this machine's clock, network and disk. Raises ConfigurationError in one clear sentence."""
    try:
        check_timezone(settings.default_timezone)
    except InvalidInput as error:
        raise ConfigurationError("KELPIE_DEFAULT_TIMEZONE", error.remedy) from None
    data_dir = DataDir.open(settings.data_dir)
    data_dir.lock()
    try:
        database = SqliteDatabase.open(_database_path(settings, data_dir))
    except BaseException:  # raised again; the lock must not keep the next start out
        data_dir.close()
        raise
    if settings.sandbox_isolation == "none":
        _log.warning(
            "isolation_optional",
            "sandbox.isolation is none: tool code runs without isolation where this machine cannot isolate it",
        )
    world = World(
        clock=SystemClock(),
        ids=RandomIds(),
        random=random.Random(),
        database=database,
        http=NetworkHttp(),
        processes=SystemProcesses(),
        embedder=MiniLm(settings.embedding_dir, data_dir.path / "models"),
        cells=BubblewrapCells(
            kept=data_dir.path / "isolation.json",
            lowered=_warn_of_no_walls if settings.sandbox_isolation == "none" else None,
        ),
        workspaces=DirectoryWorkspaces(data_dir.path),
    )
    return Kelpie(
        world,
        settings,
        packages=_packages(world, settings, data_dir.path / PACKAGES_DIR),
        data_dir=data_dir,
        password_kept=password_file.read(data_dir.path),
    )


def _packages(world: World, settings: Settings, directory: Path) -> LocalPackages | None:
    return LocalPackages(world.processes, directory, private=settings.egress_private) if settings.packages else None


def _database_path(settings: Settings, data_dir: DataDir) -> Path:
    url = settings.database_url
    if url is None:
        return data_dir.path / DATABASE_FILE
    if not url.startswith("sqlite:///"):
        raise ConfigurationError("KELPIE_DATABASE_URL", "this version stores in SQLite; use sqlite:///path/to/file.db")
    return Path(url.removeprefix("sqlite:///"))
