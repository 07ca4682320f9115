"""What a model is told about the tools that come with Kelpie: data only.

Names, types and required parameters are those of Letta's tools, because agents and clients rely on them.
"""

from typing import Any

Schema = dict[str, Any]

_LABEL = "The label of the memory block, as shown in your memory."
_DATE = "A day (2024-01-31) or a moment (2024-01-31T14:30), in your own time zone unless it names one."


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _number(description: str) -> Schema:
    return {"type": "integer", "description": description}


def _texts(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _tool(name: str, description: str, properties: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "parameters": parameters}


SEND_MESSAGE = _tool(
    "send_message",
    "Say something to the user. The user reads only what you send with this tool.",
    {"message": _text("What to say. Any text, also with line breaks and emoji.")},
    ("message",),
)

PAUSE_HEARTBEATS = _tool(
    "pause_heartbeats",
    "Rest: your turn ends at once, calls after this one are not made, and for some minutes you take no step of your "
    "own accord. Messages still reach you, and you answer each with one step. A new pause replaces an earlier one.",
    {"minutes": _number("For how long: 1 to 60 minutes. 2 if left out.")},
    (),
)

CONVERSATION_SEARCH = _tool(
    "conversation_search",
    "Search everything you and the user have said, also what is no longer in your prompt. "
    "The search is by words and by meaning. Without a query the newest messages are shown. "
    "Roles and dates narrow the search; both dates are included.",
    {
        "query": _text("What to look for, in words that were likely used or that mean the same."),
        "roles": {
            "type": "array",
            "items": {"type": "string", "enum": ["assistant", "user", "tool"]},
            "description": "Whose messages to search. Leave out to search all that was said.",
        },
        "limit": _number("How many messages to show at most. 5 if left out."),
        "start_date": _text(f"Only messages from then on. {_DATE}"),
        "end_date": _text(f"Only messages up to then; a day counts to its end. {_DATE}"),
    },
    (),
)

CONVERSATION_SEARCH_DATE = _tool(
    "conversation_search_date",
    "Read what you and the user said in a stretch of time, oldest first, 20 messages a page. A date may be a day "
    "(2024-01-31), a moment (2024-01-31T14:30, with an offset if it is not in your own time zone), a Unix time, or a "
    "stretch such as 'today', 'yesterday' or 'last 7 days', which then stands for both ends.",
    {
        "start_date": _text("From then on."),
        "end_date": _text("Up to then; a day counts to its end. Up to now if left out."),
        "page": _number("Which page, counted from 0. The first if left out."),
    },
    ("start_date",),
)

ARCHIVAL_MEMORY_INSERT = _tool(
    "archival_memory_insert",
    "Put a piece of knowledge into your archive, which has no size limit and is not in your prompt. "
    "Store one self-contained fact or note at a time, so that it makes sense when you find it again.",
    {
        "content": _text("The text to store."),
        "tags": _texts("Short keywords by which to find it later, for example a topic or a person."),
    },
    ("content",),
)

ARCHIVAL_MEMORY_SEARCH = _tool(
    "archival_memory_search",
    "Search your archive by words and meaning, best matches first. "
    "Tags and dates narrow the search; both dates are included.",
    {
        "query": _text("What to look for. Empty for the newest entries."),
        "tags": _texts("Only entries with these tags."),
        "tag_match_mode": {
            "type": "string",
            "enum": ["any", "all"],
            "description": "Whether an entry needs 'any' of the tags (the default) or 'all' of them.",
        },
        "top_k": _number("How many entries to show at most. 5 if left out."),
        "page": _number("Which page of so many entries, counted from 0. The first if left out."),
        "start_datetime": _text(f"Only entries from then on. {_DATE}"),
        "end_datetime": _text(f"Only entries up to then; a day counts to its end. {_DATE}"),
    },
    ("query",),
)

CORE_MEMORY_APPEND = _tool(
    "core_memory_append",
    "Add a line at the end of a memory block. If you have no block with that label, it is made.",
    {"label": _text(_LABEL), "content": _text("The text to add.")},
    ("label", "content"),
)

CORE_MEMORY_REPLACE = _tool(
    "core_memory_replace",
    "Replace a text in a memory block, wherever it occurs. To remove it, replace it with an empty text.",
    {
        "label": _text(_LABEL),
        "old_content": _text("The text to replace. It must be in the block exactly like this."),
        "new_content": _text("What to put in its place."),
    },
    ("label", "old_content", "new_content"),
)

MEMORY_REPLACE = _tool(
    "memory_replace",
    "Replace one piece of text in a memory block. It must occur exactly once: include enough of the text around it. "
    "Leave out line numbers such as '1→'; they are not part of the block.",
    {
        "label": _text(_LABEL),
        "old_string": _text("The text to replace, exactly as it is in the block, with spaces and line breaks."),
        "new_string": _text("What to put in its place. Empty to remove the text."),
    },
    ("label", "old_string", "new_string"),
)

MEMORY_INSERT = _tool(
    "memory_insert",
    "Insert text into a memory block as new lines. Leave out line numbers such as '1→'.",
    {
        "label": _text(_LABEL),
        "new_string": _text("The text to insert."),
        "insert_line": _number("Insert after this line: 0 for the top, -1 (the default) for the end."),
    },
    ("label", "new_string"),
)

MEMORY_RETHINK = _tool(
    "memory_rethink",
    "Write a memory block anew, for example to tidy it up or to merge what it says. All of it is replaced, so keep "
    "what is still true. If you have no block with that label, it is made. For small changes use the other tools.",
    {"label": _text(_LABEL), "new_memory": _text("The whole new text of the block.")},
    ("label", "new_memory"),
)

RETHINK_MEMORY = _tool(
    "rethink_memory",
    "Write a memory block anew. All of it is replaced, so keep what is still true. "
    "If you have no block with that label, it is made.",
    {"new_memory": _text("The whole new text of the block."), "target_block_label": _text(_LABEL)},
    ("new_memory", "target_block_label"),
)

MEMORY_FINISH_EDITS = _tool(
    "memory_finish_edits",
    "Say that your edits of the memory are complete. Call it once, when nothing is left to do.",
    {},
    (),
)

RETHINK_USER_MEMORY = _tool(
    "rethink_user_memory",
    "Write the memory block about the person anew. All of it is replaced, so keep what is still true.",
    {"new_memory": _text("The whole new text of the block.")},
    ("new_memory",),
)

FINISH_RETHINKING_MEMORY = _tool(
    "finish_rethinking_memory",
    "Say that your work on the memory is complete. Call it once, when nothing is left to do.",
    {},
    (),
)

STORE_MEMORIES = _tool(
    "store_memories",
    "Put parts of the transcript you were given into the archive, so that they can be found again. Lines are counted "
    "from 0; if the lines have numbers of their own, use those.",
    {
        "chunks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "start_index": _number("The first line of the part."),
                    "end_index": _number("The last line of the part, which is included."),
                    "context": _text("What the part is about, in one to three sentences that will help to find it."),
                },
                "required": ["start_index", "end_index", "context"],
            },
            "description": "The parts to keep, each a range of lines that belong together.",
        }
    },
    ("chunks",),
)

SEARCH_MEMORY = _tool(
    "search_memory",
    "Search what was said and what was put away in the archive, within a span of time if you give one. "
    "The search is by words: give words that were likely used. Without any, the newest is shown.",
    {
        "convo_keyword_queries": _texts("Words to look for, such as a name, a place or a number."),
        "start_minutes_ago": _number("Only what is at least this many minutes old: the newer end of the span."),
        "end_minutes_ago": _number("Only what is at most this many minutes old: the older end of the span."),
    },
    (),
)

MEMORY = _tool(
    "memory",
    "Manage your memory blocks as if they were files under /memories. Commands: "
    "'create' a block (path, description, file_text); "
    "'str_replace' a text that occurs once (path, old_string, new_string); "
    "'insert' lines (path, insert_text, insert_line); "
    "'delete' a block from your memory (path); "
    "'rename' a block (old_path, new_path) or change its description (path, description).",
    {
        "command": _text("One of create, str_replace, insert, delete, rename."),
        "path": _text("The block, for example /memories/notes."),
        "file_text": _text("For create: the text the block begins with."),
        "description": _text("For create and rename: what the block is for."),
        "old_string": _text("For str_replace: the text to replace, exactly as it is in the block."),
        "new_string": _text("For str_replace: what to put in its place."),
        "insert_line": _number("For insert: after which line; 0 for the top, -1 for the end, which is the default."),
        "insert_text": _text("For insert: the text to insert."),
        "old_path": _text("For rename: the block as it is called now."),
        "new_path": _text("For rename: what it should be called."),
    },
    ("command",),
)

FACT_SEARCH = _tool(
    "fact_search",
    "Search the facts that were learnt from your conversations. What was replaced by something newer is shown after "
    "what replaced it. With a time, only what was true then is shown.",
    {
        "query": _text("What to look for, in words that were likely used or that mean the same."),
        "at": _text(f"Show what was true at this time instead of now. {_DATE}"),
        "limit": _number("How many facts to show at most. 5 if left out."),
    },
    ("query",),
)

MEMORY_APPLY_PATCH = _tool(
    "memory_apply_patch",
    "Make several edits of your memory at once; either all of them are made or none. "
    "For one block, give hunks in the style of a unified diff: lines that start with ' ' stay, with '-' go, with '+' "
    "come; '@@' separates hunks. For more than one block, put a header before each part: '*** Add Block: label' (every "
    "line with '+'), '*** Update Block: label' (hunks, with '*** Move to: label' before them to rename it) or "
    "'*** Delete Block: label'. A line 'Description: text' right after a header sets the description.",
    {
        "label": _text("The block that hunks without a header are for."),
        "patch": _text("The patch."),
    },
    ("label", "patch"),
)

_OTHER = "The id of the other agent, such as agent-123e4567-e89b-42d3-a456-426614174000."

SEND_MESSAGE_TO_AGENT_AND_WAIT_FOR_REPLY = _tool(
    "send_message_to_agent_and_wait_for_reply",
    "Ask another agent something and wait for its answer, which is what this tool gives back. The other agent is told "
    "who asks.",
    {"message": _text("What to say to the other agent."), "other_agent_id": _text(_OTHER)},
    ("message", "other_agent_id"),
)

SEND_MESSAGE_TO_AGENTS_MATCHING_TAGS = _tool(
    "send_message_to_agents_matching_tags",
    "Ask all agents that have certain tags the same thing and wait for their answers. An agent is asked when it has "
    "every tag of 'match_all' and, if 'match_some' is not empty, at least one of its tags.",
    {
        "message": _text("What to say to each of them."),
        "match_all": _texts("Tags that an agent must have, every one of them. Empty for none in particular."),
        "match_some": _texts("Tags of which an agent must have at least one. Empty for none in particular."),
    },
    ("message", "match_all", "match_some"),
)

SEND_MESSAGE_TO_AGENT_ASYNC = _tool(
    "send_message_to_agent_async",
    "Send another agent a message without waiting. It reads the message in a turn of its own, and is told who sent "
    "it; an answer, if there is one, comes as a message to you.",
    {"message": _text("What to say to the other agent."), "other_agent_id": _text(_OTHER)},
    ("message", "other_agent_id"),
)

_KEY = "The key, such as tasks/today. Any printable text of up to 256 characters."
_TTL = "After how many seconds the entry is gone."
_IF_VERSION = "Only if the entry still has this version; 0: only if there is no such entry."


def _measure(description: str) -> Schema:
    return {"type": "number", "description": description}


WORKING_MEMORY_SET = _tool(
    "working_memory_set",
    "Keep a value under a key in your working memory, which is not in your prompt: notes of the task at hand, "
    "counters, lists. What was under the key is replaced, and so is its end.",
    {
        "key": _text(_KEY),
        "value": {"description": "Any JSON: text, a number, true or false, a list, an object."},
        "ttl_seconds": _measure(f"{_TTL} Without it, it stays."),
        "if_version": _number(_IF_VERSION),
    },
    ("key", "value"),
)

WORKING_MEMORY_GET = _tool(
    "working_memory_get",
    "Read the value under a key of your working memory, with its version and its times.",
    {"key": _text(_KEY)},
    ("key",),
)

WORKING_MEMORY_LIST = _tool(
    "working_memory_list",
    "List your working memory by key, or the newest first when you give a time. Long values are cut.",
    {
        "prefix": _text("Only keys that begin like this."),
        "updated_from": _text(f"Only entries that were written from then on. {_DATE}"),
        "updated_to": _text(f"Only entries that were written up to then; a day counts to its end. {_DATE}"),
        "limit": _number("How many to show at most: 1 to 100. 20 if left out."),
        "after": _text("Go on after this key, which an earlier list named as 'more_after'."),
    },
    (),
)

WORKING_MEMORY_UPDATE = _tool(
    "working_memory_update",
    "Change the value under a key by what it is now, in one of three ways: 'increment' a number, 'append' to a list, "
    "'merge' into an object. A key that is not there begins as 0, an empty list or an empty object. "
    "With 'ttl_seconds' alone, only the end is set anew.",
    {
        "key": _text(_KEY),
        "increment": _measure("How much to add to the number; less than 0 to take away."),
        "append": {"description": "What to put at the end of the list: any JSON."},
        "merge": {"type": "object", "description": "Members to set in the object; null takes a member out."},
        "ttl_seconds": _measure(f"{_TTL} Without it, its end stays as it is."),
        "if_version": _number(_IF_VERSION),
    },
    ("key",),
)

WORKING_MEMORY_DELETE = _tool(
    "working_memory_delete", "Delete a key of your working memory.", {"key": _text(_KEY)}, ("key",)
)

RUN_CODE = _tool(
    "run_code",
    "Run code in a sandbox and see what it prints, its exit code and how long it took. There is no network, and "
    "nothing is kept from one call to the next. The variables LETTA_AGENT_ID, LETTA_BASE_URL and LETTA_API_KEY let the "
    "code call this server about yourself.",
    {
        "code": _text("The whole program. What it prints is what you see."),
        "language": {
            "type": "string",
            "enum": ["python", "js", "ts", "r", "java"],
            "description": "What it is written in. Told from the code if left out.",
        },
    },
    ("code",),
)

RUN_CODE_WITH_TOOLS = _tool(
    "run_code_with_tools",
    "Run Python code in a sandbox in which your other tools are functions of the same names, called with the same "
    "arguments. Useful to call tools many times, or to work on what they return. A tool that fails raises ToolFailed.",
    {"code": _text("The whole program. What it prints is what you see.")},
    ("code",),
)

SHELL = _tool(
    "shell",
    "Run a command with sh, in a sandbox without network, in the directory of your own files, which are kept. "
    "You see what it prints, its exit code and how long it took.",
    {"command": _text("The command, or several lines of them.")},
    ("command",),
)

FILESYSTEM = _tool(
    "filesystem",
    "Read, write and list your own files, which are kept from one call to the next.",
    {
        "operation": {
            "type": "string",
            "enum": ["read", "write", "append", "list", "delete"],
            "description": "'write' replaces what was in the file; 'delete' takes files and empty directories.",
        },
        "path": _text("Which file or directory, from the top of your files. The top itself if left out."),
        "content": _text("What to write or to append."),
        "start_line": _number("Read from this line on, counted from 1."),
        "lines": _number("Read so many lines. All if left out."),
    },
    ("operation",),
)
