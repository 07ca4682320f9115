"""What one caller may reach: a door for each kind of thing, every one of which sees the caller's organisation only.

An endpoint is given the doors of whoever asks, so there is no way around the scope. What works for nobody in
particular (recovery, activations) uses the storage itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kelpie.accounts.access_tokens import AccessTokens
from kelpie.accounts.api_keys import ApiKeys
from kelpie.accounts.identities import Identities
from kelpie.accounts.organizations import Organizations
from kelpie.accounts.stored_data import StoredData
from kelpie.accounts.users import Users
from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.inbox.background_runs import BackgroundRuns, Backstage
from kelpie.agent.inbox.cancel import Cancellations
from kelpie.agent.inbox.send import MessageSender
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.multi_agent.running_chats import RunningChats
from kelpie.agent.resources.agents import Agents
from kelpie.agent.resources.checkpoints import Checkpoints
from kelpie.agent.resources.context_windows import ContextWindows
from kelpie.agent.resources.conversations import Conversations
from kelpie.agent.resources.deployments import Deployments
from kelpie.agent.resources.groups import Groups
from kelpie.agent.resources.histories import Histories
from kelpie.agent.resources.jobs import Jobs
from kelpie.agent.resources.manual_tool_runs import ManualToolRuns
from kelpie.agent.resources.message_search import MessageSearcher
from kelpie.agent.resources.model_previews import ModelPreviews
from kelpie.agent.resources.runs import Runs
from kelpie.agent.resources.tags import Tags
from kelpie.agent.turn.activation import Activation
from kelpie.agent.turn.active_turns import ActiveTurns
from kelpie.agent.turn.dependencies import TurnDependencies
from kelpie.core.access.callers import Caller
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.memory.archives import Archives
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.memory.embeddings import Embeddings
from kelpie.memory.facts import Facts
from kelpie.memory.working_memory import WorkingMemory
from kelpie.tools.custom.runner import CustomToolRunner
from kelpie.tools.registry.mcp_servers import McpServers
from kelpie.tools.registry.permissions import Permissions
from kelpie.tools.registry.registry import Tools
from kelpie.tools.registry.sandbox_configs import SandboxConfigs
from kelpie.tools.registry.writes import ensure_builtins
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class Api:
    caller: Caller
    world: World
    settings: Settings
    models: Models
    agents: Agents
    histories: Histories
    sending: MessageSender
    blocks: Blocks
    block_history: BlockHistory
    tools: Tools
    permissions: Permissions
    trials: ManualToolRuns
    mcp_servers: McpServers
    sandbox_configs: SandboxConfigs
    runs: Runs
    streams: BackgroundRuns
    cancelling: Cancellations
    conversations: Conversations
    groups: Groups
    deployments: Deployments
    jobs: Jobs
    recall: MessageSearcher
    drafts: ModelPreviews
    windows: ContextWindows
    archives: Archives
    facts: Facts
    working_memory: WorkingMemory
    checkpoints: Checkpoints
    identities: Identities
    tags: Tags
    organizations: Organizations
    users: Users
    keys: ApiKeys
    tokens: AccessTokens
    data: StoredData


def open_api(
    caller: Caller,
    world: World,
    settings: Settings,
    models: Models,
    dispatcher: Dispatcher[Activation],
    pauses: Pauses,
    backstage: Backstage,
    underway: ActiveTurns,
    waits: WaitGraph,
    meaning: Embeddings,
    accounts_changed: Callable[[], None],
    meetings: RunningChats,
    equipment: Callable[[], TurnDependencies],
    workbench: CustomToolRunner | None,
) -> Api:
    agents = Agents(world, models, dispatcher, pauses, settings, caller)
    sending = MessageSender(world, models, dispatcher, underway, waits, settings, caller)
    blocks = Blocks(world, agents.touched, settings.block_rules, caller)
    groups = Groups(world, agents, sending, meetings, caller)
    return Api(
        caller=caller,
        world=world,
        settings=settings,
        models=models,
        agents=agents,
        histories=Histories(world, agents, caller),
        sending=sending,
        blocks=blocks,
        block_history=BlockHistory(world, agents.touched, settings.block_rules, caller),
        tools=Tools(world, meaning, agents.touched, caller, None if workbench is None else workbench.prepare),
        trials=ManualToolRuns(equipment, workbench, caller),
        permissions=Permissions(world, settings.policy, lambda: dispatcher.notify_all(Activation.touch), caller),
        mcp_servers=McpServers(world, caller),
        sandbox_configs=SandboxConfigs(world, caller),
        runs=Runs(world.database, caller),
        streams=BackgroundRuns(world, models, settings, backstage, caller),
        cancelling=Cancellations(world, dispatcher, underway, backstage.broadcast, caller),
        conversations=Conversations(world, models, agents.touched, underway, caller),
        groups=groups,
        deployments=Deployments(world, agents, blocks, groups, caller),
        jobs=Jobs(world, caller),
        windows=ContextWindows(world, dispatcher, caller),
        recall=MessageSearcher(world, meaning, caller),
        drafts=ModelPreviews(world, models, settings, caller),
        archives=Archives(world, models, meaning, caller),
        facts=Facts(world, meaning, caller),
        working_memory=WorkingMemory(world, settings, caller),
        checkpoints=Checkpoints(world, settings, underway, agents.touched, agents.forgotten, caller),
        identities=Identities(world, caller),
        tags=Tags(world.database, caller),
        organizations=Organizations(world, ensure_builtins, accounts_changed, caller),
        users=Users(world, accounts_changed, caller),
        keys=ApiKeys(world, accounts_changed, caller),
        tokens=AccessTokens(world, accounts_changed, caller),
        data=StoredData(world, caller),
    )
