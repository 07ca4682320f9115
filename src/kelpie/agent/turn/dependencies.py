"""The collaborators and settings that all turns of a server share, whichever agent they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kelpie.accounts.quotas.quotas import Quotas
from kelpie.agent.definition.creation import CONTEXT_WINDOW_DEFAULT_MAX
from kelpie.agent.events.event_notifier import RunNotifier
from kelpie.agent.facts.extractor import FactExtractor
from kelpie.agent.journal.trace_buffer import TraceBuffer
from kelpie.agent.live.live_agents import LiveAgents
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.core.memory.blocks import DEFAULT_RULES, BlockRules
from kelpie.core.memory.working_memory import WorkingMemoryLimits
from kelpie.core.permissions.policies import NO_POLICY, Policy
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.llm.routing.models import Models
from kelpie.tools.calls.interface import ExternalTool
from kelpie.tools.calls.precomputed_search import Precompute
from kelpie.tools.mcp.runner import McpToolRunner
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class TurnDependencies:
    """The collaborators and settings that all turns of a server share."""

    world: World
    models: Models
    external: ExternalTool | None
    live_agents: LiveAgents
    pauses: Pauses
    underway: ActiveTurns
    precompute: Precompute
    fact_extractor: FactExtractor
    quotas: Quotas
    block_rules: BlockRules = DEFAULT_RULES
    context_window: int = CONTEXT_WINDOW_DEFAULT_MAX  # at most so large unless asked for
    traces: TraceBuffer | None = None  # for what goes over the wire; None: nothing of it is kept
    outside: Mapping[str, ExternalTool] = field(default_factory=dict[str, ExternalTool])  # built-in ones, by name
    working_memory: WorkingMemoryLimits = WorkingMemoryLimits()  # how much of it an agent may have
    policy: Policy = NO_POLICY  # what the server's settings permit every agent
    mcp_tools: McpToolRunner | None = None  # the runner of all tools of MCP servers
    broadcast: RunNotifier = field(default_factory=RunNotifier)  # wakes the followers of background runs

    def runner(self, tool: Tool) -> ExternalTool | None:
        """The runner of a tool that does not run inside a commit; None when there is none."""
        if tool.tool_type is ToolType.external_mcp and self.mcp_tools is not None:
            return self.mcp_tools
        built_in = None if tool.tool_type is ToolType.custom else self.outside.get(tool.name)
        return built_in or self.external
