"""What one caller may reach: a door for each kind of thing, every one of which sees the caller's organisation only.

An endpoint is given the doors of whoever asks, so there is no way around the scope. What works for nobody in
particular (recovery, activations) uses the storage itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kelpie.accounts.access_tokens import AccessTokens
from kelpie.accounts.api_keys import Keys
from kelpie.accounts.identities import Identities
from kelpie.accounts.organizations import Organizations
from kelpie.accounts.stored_data import Data
from kelpie.accounts.users import Users
from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.inbox.background_runs import Backstage, Streams
from kelpie.agent.inbox.cancel import Cancelling
from kelpie.agent.inbox.send import Sending
from kelpie.agent.inbox.wait_graph import Waits
from kelpie.agent.live.pauses import Pauses
from kelpie.agent.multi_agent.running_chats import Meetings
from kelpie.agent.resources.agents import Agents
from kelpie.agent.resources.checkpoints import Checkpoints
from kelpie.agent.resources.context_windows import Windows
from kelpie.agent.resources.conversations import Conversations
from kelpie.agent.resources.deployments import Deployments
from kelpie.agent.resources.groups import Groups
from kelpie.agent.resources.histories import Histories
from kelpie.agent.resources.jobs import Jobs
from kelpie.agent.resources.manual_tool_runs import Trials
from kelpie.agent.resources.message_search import Recall
from kelpie.agent.resources.model_previews import Drafts
from kelpie.agent.resources.runs import Runs
from kelpie.agent.resources.tags import Tags
from kelpie.agent.turn.activation import Activation
from kelpie.agent.turn.active_turns import Underway
from kelpie.agent.turn.dependencies import Equipment
from kelpie.core.access.callers import Caller
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.memory.archives import Archives
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.memory.embeddings import Meaning
from kelpie.memory.facts import Facts
from kelpie.memory.working_memory import WorkingMemory
from kelpie.tools.custom.runner import Workbench
from kelpie.tools.registry.mcp_servers import McpServers
from kelpie.tools.registry.permissions import Permissions
from kelpie.tools.registry.registry import Tools
from kelpie.tools.registry.sandbox_configs import SandboxConfigs
from kelpie.tools.registry.writes import ensure_builtins
from kelpie.world.world import World


@dataclass(frozen=True, slots=True)
class Doors:
    caller: Caller
    world: World
    settings: Settings
    models: Models
    agents: Agents
    histories: Histories
    sending: Sending
    blocks: Blocks
    block_history: BlockHistory
    tools: Tools
    permissions: Permissions
    trials: Trials
    mcp_servers: McpServers
    sandbox_configs: SandboxConfigs
    runs: Runs
    streams: Streams
    cancelling: Cancelling
    conversations: Conversations
    groups: Groups
    deployments: Deployments
    jobs: Jobs
    recall: Recall
    drafts: Drafts
    windows: Windows
    archives: Archives
    facts: Facts
    working_memory: WorkingMemory
    checkpoints: Checkpoints
    identities: Identities
    tags: Tags
    organizations: Organizations
    users: Users
    keys: Keys
    tokens: AccessTokens
    data: Data


def open_doors(
    caller: Caller,
    world: World,
    settings: Settings,
    models: Models,
    dispatcher: Dispatcher[Activation],
    pauses: Pauses,
    backstage: Backstage,
    underway: Underway,
    waits: Waits,
    meaning: Meaning,
    accounts_changed: Callable[[], None],
    meetings: Meetings,
    equipment: Callable[[], Equipment],
    workbench: Workbench | None,
) -> Doors:
    agents = Agents(world, models, dispatcher, pauses, settings, caller)
    sending = Sending(world, models, dispatcher, underway, waits, settings, caller)
    blocks = Blocks(world, agents.touched, settings.block_rules, caller)
    groups = Groups(world, agents, sending, meetings, caller)
    return Doors(
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
        trials=Trials(equipment, workbench, caller),
        permissions=Permissions(world, settings.policy, lambda: dispatcher.tell_all(Activation.touch), caller),
        mcp_servers=McpServers(world, caller),
        sandbox_configs=SandboxConfigs(world, caller),
        runs=Runs(world.database, caller),
        streams=Streams(world, models, settings, backstage, caller),
        cancelling=Cancelling(world, dispatcher, underway, backstage.broadcast, caller),
        conversations=Conversations(world, models, agents.touched, underway, caller),
        groups=groups,
        deployments=Deployments(world, agents, blocks, groups, caller),
        jobs=Jobs(world, caller),
        windows=Windows(world, dispatcher, caller),
        recall=Recall(world, meaning, caller),
        drafts=Drafts(world, models, settings, caller),
        archives=Archives(world, models, meaning, caller),
        facts=Facts(world, meaning, caller),
        working_memory=WorkingMemory(world, settings, caller),
        checkpoints=Checkpoints(world, settings, underway, agents.touched, agents.forgotten, caller),
        identities=Identities(world, caller),
        tags=Tags(world.database, caller),
        organizations=Organizations(world, ensure_builtins, accounts_changed, caller),
        users=Users(world, accounts_changed, caller),
        keys=Keys(world, accounts_changed, caller),
        tokens=AccessTokens(world, accounts_changed, caller),
        data=Data(world, caller),
    )
