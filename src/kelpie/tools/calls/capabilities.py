"""Kinds and capabilities of tools: the origin of each, and what it can reach.

Those of built-in tools are listed here; a tool with custom code can at least run code, and reaches what its author has
declared beside it. A declaration adds and never takes away.
"""

from kelpie.core.permissions.tool_permissions import Capability, Subject, ToolKind
from kelpie.core.tools.tools import Tool, ToolType

_MEMORY, _MESSAGING = (Capability.memory,), (Capability.messaging,)
_CODE, _FILES, _NETWORK = Capability.code, Capability.filesystem, Capability.network
_NOTHING = ("send_message", "pause_heartbeats", "memory_finish_edits", "finish_rethinking_memory")
_OWN: dict[str, tuple[Capability, ...]] = {
    **dict.fromkeys(_NOTHING, ()),
    "send_message_to_agent_and_wait_for_reply": _MESSAGING,
    "send_message_to_agent_async": _MESSAGING,
    "send_message_to_agents_matching_tags": _MESSAGING,
    "run_code": (_CODE,),
    "run_code_with_tools": (_CODE,),
    "shell": (_CODE, _FILES),
    "filesystem": (_FILES,),
    "web_search": (_NETWORK,),
    "fetch_webpage": (_NETWORK,),
    "open_files": (_FILES,),
    "grep_files": (_FILES,),
    "semantic_search_files": (_FILES,),
}
_OUTSIDE = (ToolType.external_mcp, ToolType.external_composio, ToolType.external_langchain)
DECLARED = "capabilities"  # among what a tool says of its sandbox


def kind_of(tool: Tool) -> ToolKind:
    if not tool.id:
        return ToolKind.client
    if tool.tool_type is ToolType.custom:
        return ToolKind.custom
    return ToolKind.mcp if tool.tool_type in _OUTSIDE else ToolKind.builtin


def subject_of(tool: Tool) -> Subject:
    """The tool as lists of permissions see it. A built-in tool that is not listed here can reach memory: most do."""
    kind, asked = kind_of(tool), tool.sandbox or {}
    reaches = {_NETWORK} if asked.get("egress") else set[Capability]()
    if kind is ToolKind.builtin:
        own = _OWN.get(tool.name, _MEMORY)
        return Subject(tool.name, kind, tuple(sorted({*own, *reaches})) if reaches else own)
    if kind is ToolKind.client:
        return Subject(tool.name, kind)
    if kind is ToolKind.mcp:
        return Subject(tool.name, kind, (_NETWORK,))
    declared = {Capability(word) for word in asked.get(DECLARED, ())}
    return Subject(tool.name, kind, tuple(sorted({_CODE, *reaches, *declared})))
