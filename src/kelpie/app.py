"""The composition root: builds the parts of a server from its ports and settings, starts it and stops it.

The adapters of a real machine are made in `local`; the simulation and tests give their own. Nothing else may build the
parts of a server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

from kelpie.accounts.authentication import Authenticator
from kelpie.accounts.passports import Passports
from kelpie.accounts.providers import StoredProviders
from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.organization_database import MemoryGate
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.actors.background import run_forever
from kelpie.actors.dispatcher import Dispatcher
from kelpie.actors.limits import ActorLimits
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.facts.extractor import FactExtractor
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.journal.trace_buffer import TraceBuffer
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.maintenance.approval_expiry import ApprovalExpiry
from kelpie.agent.maintenance.cleanup import Cleanup
from kelpie.agent.maintenance.mcp_tasks import McpTaskFollower
from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.agent.maintenance.recovery import Recovery
from kelpie.agent.maintenance.run_callbacks import RunCallbacks
from kelpie.agent.maintenance.staged_agents import StagedAgents
from kelpie.agent.maintenance.worker import MaintenanceWorker
from kelpie.agent.multi_agent.messaging_tools import MessagingTools
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.api import Api
from kelpie.batches.runner import BatchRunner
from kelpie.core.access.callers import DEFAULT_CALLER, Caller
from kelpie.core.agents.activation_state import ActivationState, StateTransition
from kelpie.core.errors import StorageError
from kelpie.core.ids import AgentId
from kelpie.core.settings.settings import Settings
from kelpie.core.time import MICROS_PER_SECOND
from kelpie.core.tools.confinement import MEGABYTE
from kelpie.encryption.rotation import KeyRotation
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.fairness.processor_time import ProcessorTime
from kelpie.files.file_tools import file_tools
from kelpie.files.processing import FileProcessing
from kelpie.llm.provider.interface import Provider
from kelpie.llm.routing.models import Models
from kelpie.mcp.connections.dialing import Dialer
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.connections.stdio_launcher import StdioLauncher
from kelpie.mcp.oauth.authorization import OAuthTokens
from kelpie.memory.embedding_backlog import EmbeddingBacklog
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.runtime import STREAM_PAGE, Runtime
from kelpie.sandbox.process import ProcessSandbox
from kelpie.search.cache import SizedCache
from kelpie.search.items import NearestItems
from kelpie.storage.accounts import accounts
from kelpie.storage.agents import ownership_fence
from kelpie.storage.agents.ownership_fence import Node
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.storage.runs import steps
from kelpie.storage.runs.traces import Tracing
from kelpie.storage.schema import ensure_schema
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import ExternalTool
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.tools.code.code_tools import code_tools
from kelpie.tools.custom.environments import Environments
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.mcp.runner import McpToolRunner
from kelpie.tools.registry.mcp_servers import ServerRules
from kelpie.tools.registry.mcp_upkeep import McpUpkeep, ReadFile
from kelpie.tools.registry.writes import ensure_builtins, log_shadowed
from kelpie.tools.web.web_tools import web_tools
from kelpie.triggers.scheduler import Scheduler
from kelpie.world.egress.broker import Broker, LocalBroker, ServeApi
from kelpie.world.files.data_dir import DataDir
from kelpie.world.lazy_imports import lazily
from kelpie.world.packages.store import Packages
from kelpie.world.sqlite.database import SqliteDatabase
from kelpie.world.world import World

with lazily:
    from kelpie.agent.turn import activation as _activation

NODE_ID = "local"  # one server owns the embedded database; the cluster will name its nodes
APIS_KEPT = 1024  # an Api is small and cheap to make; this only saves making one for every request
DAY = 24 * 3600 * MICROS_PER_SECOND
ENCODED_MESSAGES_BYTES_MAX = 16 * 1024 * 1024
ENCODED_TOOLS_BYTES_MAX = 8 * 1024 * 1024
NO_FILES = (
    "The server cannot open further files. Raise its limit on open files (ulimit -n, LimitNOFILE), or lower "
    "KELPIE_CONNECTIONS_MAX."
)
_NEVER = 2**62

_log = logs.get("app")


class Kelpie:
    """One server. `api` returns the API of a caller; `runtime` is for tests and tools, which act for no caller."""

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
        stream_page: int = STREAM_PAGE,
        mcp_file: ReadFile | None = None,
    ) -> None:
        self.world = world
        self.settings = settings
        self.data_dir = data_dir
        self.stopping = False  # streams without an end of their own end when it is set
        self.broker = LocalBroker(private=settings.egress_private, permitted=settings.tool_egress)  # for cells
        self._share = OrganizationShare(settings.organization_share)
        self._node: Node | None = None
        self._probe = asyncio.Lock()  # one check at a time
        self._apis: OrderedDict[Caller, Api] = OrderedDict()
        self._recovery_task: asyncio.Task[None] | None = None
        self._callback_task: asyncio.Task[None] | None = None
        self._embedding_task: asyncio.Task[None] | None = None
        self._fact_task: asyncio.Task[None] | None = None
        self._rotation_task: asyncio.Task[None] | None = None
        self._mcp_task_task: asyncio.Task[None] | None = None
        self._file_tasks: tuple[asyncio.Task[None], ...] = ()
        self._schedule_task: asyncio.Task[None] | None = None
        self._batch_task: asyncio.Task[None] | None = None
        self._trace_task: asyncio.Task[None] | None = None
        self._callbacks = RunCallbacks(world, settings, self._share)
        self.runtime = self._build(providers, external, packages, finder, password_kept, stream_page)
        shared = self.runtime
        self._cleanup = Cleanup(
            world, settings.stream_kept_s, shared.piece_size, shared.disk_usage, shared.staged_agents
        )
        expiry = ApprovalExpiry(world, self.runtime.live_agents, settings.approval_s, settings.max_steps)
        self._maintenance = MaintenanceWorker(self.runtime.recovery, self.runtime.memory_changes, self._cleanup, expiry)
        rules = ServerRules(settings.mcp_private, settings.mcp_directories)
        self._mcp_file = mcp_file
        self._mcp_upkeep = McpUpkeep(world, self.runtime.mcp_pool, rules, self.runtime.live_agents.reload)
        self._mcp_tasks = McpTaskFollower(world, self.runtime.mcp_pool, self.runtime.run_queue)
        self.runtime.mcp_tool_runner.task_due = self._mcp_tasks.wake
        self.runtime.run_queue.when_stopped(self._maintenance.wake)
        self.runtime.memory_changes.when_unfinished(self._maintenance.wake)
        world.database.when_in_doubt(self.runtime.recovery.reread_everything)

    def _build(
        self,
        providers: Sequence[Provider] | None,
        external: ExternalTool | None,
        packages: Packages | None,
        finder: NearestItems | None,
        password_kept: str | None,
        stream_page: int,
    ) -> Runtime:
        world, settings = self.world, self.settings
        models = Models(world, settings, providers, self._share, StoredProviders(world))
        embeddings = Embeddings(models, settings, finder)
        authenticator = Authenticator(world, settings, password_kept)
        quotas = Quotas(world.clock, settings.organization_limits)
        gate, piece_size, disk = MemoryGate(), PieceSize(), DiskUsage(quotas)
        dispatcher: Dispatcher[_activation.Activation] = Dispatcher(
            activate=self._activate,
            deactivate=self._deactivate,
            clock=world.clock,
            rng=world.random,
            limits=_limits(settings),
            observe=_observe,
            size=lambda activation: activation.bytes,
        )
        run_queue = RunQueue(dispatcher, self._run_ended)
        batch_runner = BatchRunner(world, settings, quotas, run_queue, self._batch_ended)
        live_agents = LiveAgents(dispatcher, run_queue)
        pauses, active_turns, run_notifier = Pauses(world.clock), ActiveTurns(), RunNotifier()
        passports = Passports(world.ids, world.clock)
        callback = ApiCallback(passports, world.clock)  # for code of tools: access to the HTTP API
        environments, sandbox = Environments(packages, self._share), _sandbox(world, settings, self.broker, self._share)
        wait_graph = WaitGraph(settings.sandbox_cells_max, None if sandbox is None else sandbox.slots)
        mcp_tokens = _mcp_tokens(world, settings)
        mcp_pool = _mcp_pool(world, settings, sandbox, environments, mcp_tokens, self._share)
        mcp_tool_runner = McpToolRunner(world, mcp_pool)
        custom_tools = None if sandbox is None else CustomToolRunner(world, sandbox, environments, callback)
        builtin_tools: Mapping[str, ExternalTool] = {
            **MessagingTools(world, dispatcher, wait_graph, settings).tools(),
            **code_tools(world, sandbox, callback, environments, settings.workspace_mb_max, disk),
            **web_tools(world, settings, self._share),
            **file_tools(world, embeddings),
        }
        turn_dependencies = TurnDependencies(
            world=world,
            models=models,
            external=external or custom_tools,
            outside=builtin_tools,
            mcp_tools=mcp_tool_runner,
            live_agents=live_agents,
            pauses=pauses,
            underway=active_turns,
            broadcast=run_notifier,
            precompute=Precompute(world.database, embeddings),
            fact_extractor=FactExtractor(world, models, embeddings, pauses, live_agents, settings.policy),
            quotas=quotas,
            block_rules=settings.block_rules,
            working_memory=settings.working_memory,
            context_window=settings.context_window,
            policy=settings.policy,
            traces=_traces(world, settings),
        )
        return Runtime(
            world=world,
            settings=settings,
            models=models,
            embeddings=embeddings,
            share=self._share,
            processor_time=ProcessorTime(world.clock.monotonic_ns, settings.processor_share),
            authenticator=authenticator,
            quotas=quotas,
            disk_usage=disk,
            file_processing=FileProcessing(world, settings, embeddings, quotas, live_agents.reload, piece_size),
            memory_gate=gate,
            memory_changes=MemoryChanges(world, gate, live_agents, dispatcher.release, piece_size),
            piece_size=piece_size,
            staged_agents=StagedAgents(),
            passports=passports,
            key_rotation=KeyRotation(world),
            dispatcher=dispatcher,
            live_agents=live_agents,
            run_queue=run_queue,
            run_notifier=run_notifier,
            recovery=Recovery(world.database, dispatcher, run_queue, live_agents, authenticator),
            scheduler=Scheduler(world, settings, quotas, run_queue, batch_runner.wake),
            batch_runner=batch_runner,
            pauses=pauses,
            active_turns=active_turns,
            wait_graph=wait_graph,
            running_chats=RunningChats(),
            turn_dependencies=turn_dependencies,
            sandbox=sandbox,
            custom_tools=custom_tools,
            encoded_messages=SizedCache(ENCODED_MESSAGES_BYTES_MAX),
            encoded_tools=SizedCache(ENCODED_TOOLS_BYTES_MAX),
            mcp_pool=mcp_pool,
            mcp_tool_runner=mcp_tool_runner,
            mcp_tokens=mcp_tokens,
            stream_page=stream_page,
        )

    def api(self, caller: Caller = DEFAULT_CALLER) -> Api:
        """The API of this caller."""
        found = self._apis.get(caller)
        if found is None:
            self._apis[caller] = found = Api(self.runtime, caller)
            if len(self._apis) > APIS_KEPT:
                self._apis.popitem(last=False)
        self._apis.move_to_end(caller)
        return found

    def connect_api(self, serve: ServeApi) -> None:
        """Lets code in cells reach the HTTP API; before this call it cannot."""
        self.broker.api = serve

    async def start(self) -> None:
        """Migrates the schema, checks the encryption keys, registers this node, and starts the background work.

        Recovery is part of that work. Raises ConfigurationError and StorageError.
        """
        database, runtime = self.world.database, self.runtime
        await ensure_schema(database, back_up=database.back_up if isinstance(database, SqliteDatabase) else None)
        await self._open_keys()
        await self.seed_defaults()
        await runtime.quotas.load(database)
        await runtime.memory_changes.close_gates()
        if runtime.models.counts_money:
            since = self.world.clock.now() - DAY
            runtime.models.remember(await database.read(lambda tx: steps.spent_since(tx, since)))
        self._node = await database.transact(lambda tx: ownership_fence.join(tx, NODE_ID, "", _NEVER))
        embedding = EmbeddingBacklog(self.world, runtime.embeddings, runtime.active_turns.has_any)
        facts, traces = runtime.turn_dependencies.fact_extractor, runtime.turn_dependencies.traces
        self._recovery_task = asyncio.create_task(run_forever(self._maintenance.run, "recovery and cleanup"))
        self._callback_task = asyncio.create_task(run_forever(self._callbacks.run, "callbacks"))
        self._embedding_task = asyncio.create_task(run_forever(embedding.run, "embedding backlog"))
        self._fact_task = asyncio.create_task(run_forever(facts.run, "fact extraction"))
        self._mcp_task_task = asyncio.create_task(run_forever(self._mcp_tasks.run, "tasks of MCP servers"))
        await runtime.file_processing.drop_orphans()
        self._file_tasks = (
            asyncio.create_task(run_forever(runtime.file_processing.read_files, "reading of files")),
            asyncio.create_task(run_forever(runtime.file_processing.index_files, "indexing of files")),
        )
        self._schedule_task = asyncio.create_task(run_forever(runtime.scheduler.run, "schedules"))
        self._batch_task = asyncio.create_task(run_forever(runtime.batch_runner.run, "batches"))
        if traces is not None:
            self._trace_task = asyncio.create_task(run_forever(traces.run, "prompts of steps"))
        if self._mcp_file is not None:
            await self._mcp_upkeep.load(self._mcp_file)
        if self.world.keyring.store is not None:
            rotation = runtime.key_rotation.run
            self._rotation_task = asyncio.create_task(run_forever(rotation, "rotation of the encryption key"))

    async def why_not_ready(self) -> str | None:
        """Why this server cannot do its work now; None when it can. While writes fail, it tries one itself."""
        database, node = self.world.database, self._node
        if node is None:
            return "The server is starting."
        if self.world.lacks_files():
            return NO_FILES
        async with self._probe:
            if database.trouble() is not None:
                try:
                    await database.transact(lambda tx: ownership_fence.rewrite(tx, node))
                except StorageError as error:
                    return str(error)
            trouble = database.trouble()
        return None if trouble is None else str(trouble)

    async def stop(self, drain_s: float) -> None:
        """Lets running turns finish within `drain_s` seconds and closes everything."""
        runtime, self.stopping = self.runtime, True
        if self._schedule_task is not None:
            await runtime.scheduler.finish_round()
            self._schedule_task.cancel()
        background = (self._recovery_task, self._embedding_task, self._fact_task, self._rotation_task)
        for task in (*background, self._mcp_task_task, self._batch_task, *self._file_tasks):
            if task is not None:
                task.cancel()
        await runtime.running_chats.close()
        await runtime.dispatcher.close(drain_s)
        if self._callback_task is not None:
            self._callback_task.cancel()
        if self._trace_task is not None:
            self._trace_task.cancel()
        if (traces := runtime.turn_dependencies.traces) is not None:
            await traces.close()
        await self._mcp_upkeep.close()
        await runtime.mcp_pool.close()
        await runtime.mcp_tokens.close()
        if runtime.custom_tools is not None:
            await runtime.custom_tools.close()
        if runtime.sandbox is not None:
            await runtime.sandbox.close()
        await self.world.workers.close()
        await runtime.models.close()
        await runtime.authenticator.close()
        if self.world.embedder is not None:
            await self.world.embedder.close()
        await self.world.database.close()
        if self.data_dir is not None:
            self.data_dir.close()

    async def _open_keys(self) -> None:
        database = self.world.database
        had_plain_text = await self.runtime.key_rotation.open(self.settings.encryption_key_lost)
        if had_plain_text and isinstance(database, SqliteDatabase):
            await database.truncate_log()  # which holds the plain text until it is overwritten
            _log.warning(
                "plain_text_backup",
                "Secrets are encrypted now; the backup from before the upgrade still holds them as plain text",
            )

    async def seed_defaults(self) -> None:
        """Makes sure that the default organization and user and every organization's built-in tools exist."""
        database, now = self.world.database, self.world.clock.now()
        await database.transact(partial(accounts.ensure_defaults, now=now))
        organizations = await database.read(accounts.organization_ids)
        self._share.organizations = len(organizations)
        for organization in organizations:
            found, _ = await database.transact(partial(ensure_builtins, organization=organization, now=now))
            log_shadowed(found)

    def _run_ended(self) -> None:
        self._callbacks.wake()
        self.runtime.scheduler.run_ended()
        self.runtime.batch_runner.run_ended()

    def _batch_ended(self) -> None:
        self._callbacks.wake()
        self.runtime.scheduler.run_ended()

    async def _activate(self, key: str) -> _activation.Activation:
        assert self._node is not None, "start() comes first"
        return await _activation.Activation.load(self.runtime.turn_dependencies, self._node, AgentId(key))

    async def _deactivate(self, activation: _activation.Activation) -> None:
        """Nothing to save: all that an activation holds is committed. A turn that goes on commits nothing more."""
        activation.end()


def _limits(settings: Settings) -> ActorLimits:
    return ActorLimits(
        mailbox_size=settings.mailbox_size,
        hot_max=settings.hot_agents_max,
        hot_bytes_max=settings.hot_bytes_max,
        idle_s=settings.idle_s,
        place_wait_s=settings.hot_wait_s,
        activate_s=settings.load_s,
        drain_s=settings.drain_s,
    )


def _sandbox(world: World, settings: Settings, broker: Broker, share: OrganizationShare) -> ProcessSandbox | None:
    """None on a machine without sandbox isolation; then custom code is refused."""
    if world.cells is None:
        return None
    return ProcessSandbox(
        world.cells,
        world.clock,
        broker,
        cells_max=settings.sandbox_cells_max,
        waiting_max=settings.sandbox_waiting_max,
        warm_max=settings.sandbox_warm_max,
        memory_bytes=settings.sandbox_memory_mb_max * MEGABYTE or world.memory_bytes // 4 * 3,
        share=share,
    )


def _mcp_tokens(world: World, settings: Settings) -> OAuthTokens:
    limits = _mcp_limits(settings).transport
    return OAuthTokens(world, limits, settings.mcp_private, (settings.mcp_public_url or "").rstrip("/"))


def _mcp_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        connect_s=settings.mcp_connect_s,
        read_s=settings.mcp_read_s,
        call_s=settings.mcp_call_s,
        answer_bytes=round(settings.mcp_answer_mb * MEGABYTE),
        failures_max=settings.mcp_failures_max,
        retry_s=settings.mcp_retry_s,
        idle_s=settings.mcp_idle_s,
        processes_max=settings.mcp_processes_max,
    )


def _mcp_pool(
    world: World,
    settings: Settings,
    sandbox: ProcessSandbox | None,
    environments: Environments,
    tokens: OAuthTokens,
    share: OrganizationShare,
) -> ConnectionPool:
    launcher = StdioLauncher(sandbox, environments, settings.mcp_directories, settings.tool_memory_mb or None)
    dialer = Dialer(world.http, launcher, settings.mcp_private, tokens.of)
    return ConnectionPool(dialer, _mcp_limits(settings), world.clock, share)


def _traces(world: World, settings: Settings) -> TraceBuffer | None:
    tracing = Tracing(settings.trace_steps, settings.trace_bytes_max)
    return TraceBuffer(world, tracing) if settings.trace_steps else None


def _observe(transition: StateTransition) -> None:
    facts = {"agent_id": transition.key, "before": transition.before.value, "after": transition.after.value}
    if transition.after is ActivationState.failed:
        _log.warning(
            "agent_failed", "Agent failed; it is loaded again when it is next used", reason=transition.reason, **facts
        )
    else:
        _log.debug("agent_state_changed", "Agent changed its state", reason=transition.reason, **facts)
