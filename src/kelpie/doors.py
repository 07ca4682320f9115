"""What one caller may reach: a door for each kind of thing, every one of which sees the caller's organisation only.

An endpoint is given the doors of whoever asks, so there is no way around the scope. What works for nobody in
particular (recovery, activations) uses the storage itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kelpie.accounts.data import Data
from kelpie.accounts.identities import Identities
from kelpie.accounts.keys import Keys
from kelpie.accounts.organizations import Organizations
from kelpie.accounts.tokens import AccessTokens
from kelpie.accounts.users import Users
from kelpie.actors.dispatcher import Dispatcher
from kelpie.agent.activation import Activation
from kelpie.agent.agents import Agents
from kelpie.agent.cancelling import Cancelling
from kelpie.agent.checkpoints import Checkpoints
from kelpie.agent.conversations import Conversations
from kelpie.agent.deployments import Deployments
from kelpie.agent.drafts import Drafts
from kelpie.agent.equipment import Equipment
from kelpie.agent.groups import Groups
from kelpie.agent.histories import Histories
from kelpie.agent.jobs import Jobs
from kelpie.agent.meetings import Meetings
from kelpie.agent.pause import Pauses
from kelpie.agent.recall import Recall
from kelpie.agent.runs import Runs
from kelpie.agent.sending import Sending
from kelpie.agent.streams import Backstage, Streams
from kelpie.agent.tags import Tags
from kelpie.agent.trials import Trials
from kelpie.agent.underway import Underway
from kelpie.agent.waits import Waits
from kelpie.agent.windows import Windows
from kelpie.core.accounts import Caller
from kelpie.core.settings import Settings
from kelpie.llm.models import Models
from kelpie.memory.archives import Archives
from kelpie.memory.block_history import BlockHistory
from kelpie.memory.blocks import Blocks
from kelpie.memory.facts import Facts
from kelpie.memory.meaning import Meaning
from kelpie.memory.working_memory import WorkingMemory
from kelpie.tools.mcp_servers import McpServers
from kelpie.tools.permissions import Permissions
from kelpie.tools.registry import Tools
from kelpie.tools.sandbox_configs import SandboxConfigs
from kelpie.tools.tool_writes import ensure_builtins
from kelpie.tools.workbench import Workbench
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
