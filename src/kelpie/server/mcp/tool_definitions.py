"""The tools that Kelpie offers to MCP clients: names, descriptions and schemas. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_AGENT = {"type": "string", "description": "Id or name of the agent."}
_LABEL = {"type": "string", "description": "Label of the memory block, such as human."}


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool. One that does not `write` is offered to keys with the scope `read` as well."""

    name: str
    title: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...] = ()
    writes: bool = False
    long: bool = False  # it may take minutes, and can be a task
    repeatable: bool = True  # a second call with the same arguments changes nothing more

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }

    def wire(self, *, tasks: bool) -> dict[str, Any]:
        """The tool in a list; with `tasks`, whether a call may ask for one."""
        shown: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {
                "title": self.title,
                "readOnlyHint": not self.writes,
                "destructiveHint": False,
                "idempotentHint": self.repeatable,
                "openWorldHint": self.long,
            },
        }
        return shown | ({"execution": {"taskSupport": "optional"}} if tasks and self.long else {})


LIST_AGENTS = ToolDefinition(
    "list_agents",
    "List agents",
    "List the agents of this Kelpie server: id, name, description, model and when each was last changed.",
    {
        "query": {"type": "string", "description": "Return only agents whose name contains this text."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Number of agents. Default: 20."},
        "after": {"type": "string", "description": "Id of the last agent of the previous page."},
    },
)
SEND_MESSAGE = ToolDefinition(
    "send_message",
    "Talk to an agent",
    "Send a message to an agent and return its reply. The agent remembers the conversation and may use its own tools, "
    "so this can take minutes.",
    {
        "agent": _AGENT,
        "message": {"type": "string", "description": "What to say."},
        "conversation_id": {
            "type": "string",
            "description": "One of the agent's conversations. Default: the agent's main conversation.",
        },
        "message_id": {
            "type": "string",
            "maxLength": 128,
            "description": "An id that you choose for the message. When you repeat a call because you got no answer, "
            "use the same id, so that the agent gets the message only once.",
        },
    },
    ("agent", "message"),
    writes=True,
    long=True,
    repeatable=False,
)
READ_BLOCKS = ToolDefinition(
    "read_memory_blocks",
    "Read memory blocks",
    "Read the memory blocks of an agent: the part of its memory that it always sees.",
    {"agent": _AGENT, "label": {**_LABEL, "description": "Return only the block with this label."}},
    ("agent",),
)
EDIT_BLOCK = ToolDefinition(
    "edit_memory_block",
    "Edit a memory block",
    "Change a memory block of an agent. Give either 'value' (the whole new content), or 'old_text' and 'new_text' (to "
    "replace a text that occurs exactly once), or 'append' (to add a line at the end).",
    {
        "agent": _AGENT,
        "label": _LABEL,
        "value": {"type": "string", "description": "The whole new content."},
        "old_text": {"type": "string", "description": "The text to replace; it must occur exactly once."},
        "new_text": {"type": "string", "description": "The text that replaces it; may be empty."},
        "append": {"type": "string", "description": "The text to add in a new line at the end."},
    },
    ("agent", "label"),
    writes=True,
    repeatable=False,
)
SEARCH_MEMORY = ToolDefinition(
    "search_memory",
    "Search memory",
    "Search the long-term memory of an agent: its archive, and the messages of its conversations.",
    {
        "agent": _AGENT,
        "query": {"type": "string", "maxLength": 10_000, "description": "What to search for."},
        "where": {
            "type": "string",
            "enum": ["everywhere", "archive", "messages"],
            "description": "Where to search. Default: everywhere.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Results of each kind. Default: 5."},
    },
    ("agent", "query"),
)
INSERT_MEMORY = ToolDefinition(
    "insert_memory",
    "Insert memory",
    "Store a text in the archive of an agent, where the agent can find it by searching.",
    {
        "agent": _AGENT,
        "text": {"type": "string", "description": "The text to store."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags of the text."},
    },
    ("agent", "text"),
    writes=True,
    repeatable=False,
)

DEFINITIONS = (LIST_AGENTS, SEND_MESSAGE, READ_BLOCKS, EDIT_BLOCK, SEARCH_MEMORY, INSERT_MEMORY)
