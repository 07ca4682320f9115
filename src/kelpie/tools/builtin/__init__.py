"""The tools that come with Kelpie. Each runs inside the journal's transaction, so its effect and its recorded result
are one commit; the few that must wait for others run outside of it, by the runner registered under their name.
"""

from dataclasses import dataclass

from kelpie.core.ids import DEFAULT_USER, OrganizationId, ToolId
from kelpie.core.time import Micros
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.tools.builtin import (
    archival,
    async_messages,
    block_edits,
    conversation,
    facts,
    files,
    memory_command,
    memory_patch,
    pause,
    schemas,
    voice,
    working_memory,
)
from kelpie.tools.calls.interface import TransactionalTool
from kelpie.tools.calls.precomputed_search import Preparation
from kelpie.tools.calls.stable_ids import stable_uuid


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool: its schema for the model, and its function."""

    schema: schemas.Schema
    tool_type: ToolType
    run: TransactionalTool | None  # None: it runs outside of commits
    parallel: bool = False
    precompute: Preparation | None = None  # what must be found out before the commit it runs in

    @property
    def name(self) -> str:
        return self.schema["name"]

    def row(self, organization: OrganizationId, now: Micros) -> Tool:
        """The tool as it is registered; its id is the same every time."""
        return Tool(
            id=ToolId(f"tool-{stable_uuid(organization, self.name)}"),
            name=self.name,
            tool_type=self.tool_type,
            json_schema=self.schema,
            created_at=now,
            updated_at=now,
            description=self.schema["description"],
            tags=(self.tool_type.value,),
            enable_parallel_execution=self.parallel,
            organization_id=organization,
            created_by_id=DEFAULT_USER,
            last_updated_by_id=DEFAULT_USER,
        )


_CORE, _MEMORY, _SLEEPTIME = ToolType.letta_core, ToolType.letta_memory_core, ToolType.letta_sleeptime_core
_VOICE, _AGENTS = ToolType.letta_voice_sleeptime_core, ToolType.letta_multi_agent_core
_BUILTIN, _FILES = ToolType.letta_builtin, ToolType.letta_files_core

BUILTINS: dict[str, Builtin] = {
    builtin.name: builtin
    for builtin in (
        Builtin(schemas.SEND_MESSAGE, _CORE, conversation.send_message),
        Builtin(
            schemas.CONVERSATION_SEARCH,
            _CORE,
            conversation.conversation_search,
            parallel=True,
            precompute=conversation.precompute_search,
        ),
        Builtin(schemas.CONVERSATION_SEARCH_DATE, _CORE, conversation.conversation_search_date, parallel=True),
        Builtin(schemas.PAUSE_HEARTBEATS, _CORE, pause.pause_heartbeats),
        Builtin(
            schemas.ARCHIVAL_MEMORY_INSERT,
            _CORE,
            archival.archival_memory_insert,
            precompute=archival.precompute_insert,
        ),
        Builtin(
            schemas.ARCHIVAL_MEMORY_SEARCH,
            _CORE,
            archival.archival_memory_search,
            parallel=True,
            precompute=archival.precompute_search,
        ),
        Builtin(schemas.FACT_SEARCH, _CORE, facts.fact_search, parallel=True, precompute=facts.precompute_search),
        Builtin(schemas.CORE_MEMORY_APPEND, _MEMORY, block_edits.core_memory_append),
        Builtin(schemas.CORE_MEMORY_REPLACE, _MEMORY, block_edits.core_memory_replace),
        Builtin(schemas.MEMORY, _MEMORY, memory_command.memory),
        Builtin(schemas.MEMORY_APPLY_PATCH, _MEMORY, memory_patch.memory_apply_patch),
        Builtin(schemas.MEMORY_REPLACE, _SLEEPTIME, block_edits.memory_replace),
        Builtin(schemas.MEMORY_INSERT, _SLEEPTIME, block_edits.memory_insert),
        Builtin(schemas.MEMORY_RETHINK, _SLEEPTIME, block_edits.memory_rethink),
        Builtin(schemas.RETHINK_MEMORY, _SLEEPTIME, block_edits.rethink_memory),
        Builtin(schemas.MEMORY_FINISH_EDITS, _SLEEPTIME, block_edits.finished),
        Builtin(schemas.RETHINK_USER_MEMORY, _VOICE, block_edits.rethink_user_memory),
        Builtin(schemas.FINISH_RETHINKING_MEMORY, _VOICE, block_edits.finished),
        Builtin(schemas.STORE_MEMORIES, _VOICE, voice.store_memories),
        Builtin(schemas.SEARCH_MEMORY, _VOICE, voice.search_memory, precompute=voice.precompute_search),
        Builtin(schemas.SEND_MESSAGE_TO_AGENT_AND_WAIT_FOR_REPLY, _AGENTS, None),
        Builtin(schemas.SEND_MESSAGE_TO_AGENTS_MATCHING_TAGS, _AGENTS, None),
        Builtin(schemas.SEND_MESSAGE_TO_AGENT_ASYNC, _AGENTS, async_messages.send_message_to_agent_async),
        Builtin(schemas.RUN_CODE, _BUILTIN, None, parallel=True),
        Builtin(schemas.RUN_CODE_WITH_TOOLS, _BUILTIN, None),
        Builtin(schemas.SHELL, _BUILTIN, None),
        Builtin(schemas.FILESYSTEM, _BUILTIN, None),
        Builtin(schemas.WEB_SEARCH, _BUILTIN, None, parallel=True),
        Builtin(schemas.FETCH_WEBPAGE, _BUILTIN, None, parallel=True),
        Builtin(schemas.OPEN_FILES, _FILES, files.open_files),
        Builtin(schemas.GREP_FILES, _FILES, None, parallel=True),
        Builtin(schemas.SEMANTIC_SEARCH_FILES, _FILES, None, parallel=True),
        Builtin(schemas.WORKING_MEMORY_SET, _CORE, working_memory.working_memory_set),
        Builtin(schemas.WORKING_MEMORY_GET, _CORE, working_memory.working_memory_get),
        Builtin(schemas.WORKING_MEMORY_LIST, _CORE, working_memory.working_memory_list),
        Builtin(schemas.WORKING_MEMORY_UPDATE, _CORE, working_memory.working_memory_update),
        Builtin(schemas.WORKING_MEMORY_DELETE, _CORE, working_memory.working_memory_delete),
    )
}

RESERVED = frozenset(BUILTINS)
MULTI_AGENT = tuple(builtin.name for builtin in BUILTINS.values() if builtin.tool_type is _AGENTS)
