"""The parts of one running server that the APIs of all its callers share. Built once, by `app.Kelpie`.

Nothing in here knows a caller: `api.Api` decides what a caller may reach.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kelpie.accounts.authentication import Authenticator
from kelpie.accounts.passports import Passports
from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.accounts.quotas.organization_database import MemoryGate
from kelpie.accounts.quotas.quotas import Quotas
from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.inbox.run_queue import RunQueue
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.maintenance.memory_changes import MemoryChanges
from kelpie.agent.maintenance.recovery import Recovery
from kelpie.agent.maintenance.staged_agents import StagedAgents
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.batches.runner import BatchRunner
from kelpie.core.encoded_json import EncodedJson
from kelpie.core.settings.settings import Settings
from kelpie.encryption.rotation import KeyRotation
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.fairness.processor_time import ProcessorTime
from kelpie.files.processing import FileProcessing
from kelpie.llm.routing.models import Models
from kelpie.mcp.connections.pool import ConnectionPool
from kelpie.mcp.oauth.authorization import OAuthTokens
from kelpie.memory.embeddings import Embeddings
from kelpie.sandbox.process import ProcessSandbox
from kelpie.search.cache import SizedCache
from kelpie.storage.rows.piece_size import PieceSize
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.mcp.runner import McpToolRunner
from kelpie.triggers.scheduler import Scheduler
from kelpie.world.world import World

if TYPE_CHECKING:
    from kelpie.agent.turn.activation import Activation

STREAM_PAGE = 64  # batches of a stored stream that a follower reads at once


@dataclass(frozen=True, slots=True)
class Runtime:
    """One server's collaborators. Without a sandbox, code of tools is refused."""

    world: World
    settings: Settings
    models: Models
    embeddings: Embeddings
    share: OrganizationShare
    processor_time: ProcessorTime
    authenticator: Authenticator
    quotas: Quotas
    disk_usage: DiskUsage
    file_processing: FileProcessing
    memory_gate: MemoryGate
    memory_changes: MemoryChanges
    piece_size: PieceSize  # of long writes
    staged_agents: StagedAgents
    passports: Passports  # of the code of tools that runs now
    key_rotation: KeyRotation
    dispatcher: Dispatcher[Activation]
    live_agents: LiveAgents
    run_queue: RunQueue
    run_notifier: RunNotifier
    recovery: Recovery
    scheduler: Scheduler
    batch_runner: BatchRunner
    pauses: Pauses
    active_turns: ActiveTurns
    wait_graph: WaitGraph
    running_chats: RunningChats
    turn_dependencies: TurnDependencies
    sandbox: ProcessSandbox | None
    custom_tools: CustomToolRunner | None
    encoded_messages: SizedCache[Hashable, EncodedJson]  # by version and by the format that a client asked for
    encoded_tools: SizedCache[tuple[str, int, int], EncodedJson]  # by id, version and time of the last change
    mcp_pool: ConnectionPool
    mcp_tool_runner: McpToolRunner
    mcp_tokens: OAuthTokens
    stream_page: int
