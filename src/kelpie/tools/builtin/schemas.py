"""Schemas of the built-in tools as models see them: data only.

Names, types and required parameters are those of Letta's tools, because agents and clients rely on them.
"""

from typing import Any

Schema = dict[str, Any]

_LABEL = "Label of the memory block, as shown in your memory."
_DATE = "A date (2024-01-31) or a date and time (2024-01-31T14:30), in your time zone unless it has an offset."


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
    "Send a message to the user. The user only sees what you send with this tool.",
    {"message": _text("The message. Line breaks and emoji are allowed.")},
    ("message",),
)

PAUSE_HEARTBEATS = _tool(
    "pause_heartbeats",
    "Pause for some minutes. Your turn ends at once, later calls in the same reply are not run, and during the pause "
    "you take no steps on your own. You still receive messages and answer each with one step. A new pause replaces an "
    "earlier one.",
    {"minutes": _number("Length of the pause: 1 to 60 minutes. Default: 2.")},
    (),
)

CONVERSATION_SEARCH = _tool(
    "conversation_search",
    "Search all earlier messages between you and the user, including those that are no longer in your context. "
    "The search matches words and meaning. Without a query, the newest messages are returned. "
    "Use roles and dates to narrow the search; both dates are inclusive.",
    {
        "query": _text("What to search for: words that were probably used, or words with the same meaning."),
        "roles": {
            "type": "array",
            "items": {"type": "string", "enum": ["assistant", "user", "tool"]},
            "description": "Search only messages of these roles. Default: all roles.",
        },
        "limit": _number("Maximum number of messages to return. Default: 5."),
        "start_date": _text(f"Only messages from this time on. {_DATE}"),
        "end_date": _text(f"Only messages up to this time; a date includes the whole day. {_DATE}"),
    },
    (),
)

CONVERSATION_SEARCH_DATE = _tool(
    "conversation_search_date",
    "Read the messages between you and the user in a period, oldest first, 20 per page. A date may be a day "
    "(2024-01-31), a date and time (2024-01-31T14:30, with an offset if it is not in your time zone), a Unix time, or "
    "a period such as 'today', 'yesterday' or 'last 7 days', which sets both the start and the end.",
    {
        "start_date": _text("Start of the period."),
        "end_date": _text("End of the period; a date includes the whole day. Default: now."),
        "page": _number("Page number, starting at 0. Default: 0."),
    },
    ("start_date",),
)

ARCHIVAL_MEMORY_INSERT = _tool(
    "archival_memory_insert",
    "Store a text in your archive, which has no size limit and is not in your context. "
    "Store one self-contained fact or note at a time, so that it makes sense when you find it again.",
    {
        "content": _text("The text to store."),
        "tags": _texts("Short keywords to find the text by later, for example a topic or a person."),
    },
    ("content",),
)

ARCHIVAL_MEMORY_SEARCH = _tool(
    "archival_memory_search",
    "Search your archive by words and meaning, best matches first. "
    "Use tags and dates to narrow the search; both dates are inclusive.",
    {
        "query": _text("What to search for. Use an empty text for the newest entries."),
        "tags": _texts("Only entries with these tags."),
        "tag_match_mode": {
            "type": "string",
            "enum": ["any", "all"],
            "description": "Whether an entry needs 'any' of the tags (the default) or 'all' of them.",
        },
        "top_k": _number("Maximum number of entries per page. Default: 5."),
        "page": _number("Page number, starting at 0. Default: 0."),
        "start_datetime": _text(f"Only entries from this time on. {_DATE}"),
        "end_datetime": _text(f"Only entries up to this time; a date includes the whole day. {_DATE}"),
    },
    ("query",),
)

CORE_MEMORY_APPEND = _tool(
    "core_memory_append",
    "Add a line to the end of a memory block. If you have no block with that label, it is created.",
    {"label": _text(_LABEL), "content": _text("The text to add.")},
    ("label", "content"),
)

CORE_MEMORY_REPLACE = _tool(
    "core_memory_replace",
    "Replace all occurrences of a text in a memory block. To remove it, replace it with an empty text.",
    {
        "label": _text(_LABEL),
        "old_content": _text("The text to replace. It must match the block exactly."),
        "new_content": _text("The new text."),
    },
    ("label", "old_content", "new_content"),
)

MEMORY_REPLACE = _tool(
    "memory_replace",
    "Replace one text in a memory block. The text must occur exactly once: include enough of the surrounding text. "
    "Do not include line numbers such as '1→'; they are not part of the block.",
    {
        "label": _text(_LABEL),
        "old_string": _text("The text to replace, exactly as it is in the block, including spaces and line breaks."),
        "new_string": _text("The new text. Use an empty text to remove the old one."),
    },
    ("label", "old_string", "new_string"),
)

MEMORY_INSERT = _tool(
    "memory_insert",
    "Insert text into a memory block as new lines. Do not include line numbers such as '1→'.",
    {
        "label": _text(_LABEL),
        "new_string": _text("The text to insert."),
        "insert_line": _number("Insert after this line: 0 for the top, -1 (the default) for the end."),
    },
    ("label", "new_string"),
)

MEMORY_RETHINK = _tool(
    "memory_rethink",
    "Rewrite a whole memory block, for example to reorganize or merge its content. The old text is replaced "
    "completely, so keep what is still true. If you have no block with that label, it is created. For small changes "
    "use the other tools.",
    {"label": _text(_LABEL), "new_memory": _text("The complete new text of the block.")},
    ("label", "new_memory"),
)

RETHINK_MEMORY = _tool(
    "rethink_memory",
    "Rewrite a whole memory block. The old text is replaced completely, so keep what is still true. "
    "If you have no block with that label, it is created.",
    {"new_memory": _text("The complete new text of the block."), "target_block_label": _text(_LABEL)},
    ("new_memory", "target_block_label"),
)

MEMORY_FINISH_EDITS = _tool(
    "memory_finish_edits",
    "Report that your memory edits are complete. Call this once, when you are done.",
    {},
    (),
)

RETHINK_USER_MEMORY = _tool(
    "rethink_user_memory",
    "Rewrite the memory block about the user. The old text is replaced completely, so keep what is still true.",
    {"new_memory": _text("The complete new text of the block.")},
    ("new_memory",),
)

FINISH_RETHINKING_MEMORY = _tool(
    "finish_rethinking_memory",
    "Report that your work on the memory is complete. Call this once, when you are done.",
    {},
    (),
)

STORE_MEMORIES = _tool(
    "store_memories",
    "Store parts of the given transcript in the archive, so that they can be found again. Lines are numbered from 0; "
    "if the lines already show numbers, use those.",
    {
        "chunks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "start_index": _number("First line of the part."),
                    "end_index": _number("Last line of the part (inclusive)."),
                    "context": _text("What the part is about, in one to three sentences that help to find it later."),
                },
                "required": ["start_index", "end_index", "context"],
            },
            "description": "The parts to store, each a range of related lines.",
        }
    },
    ("chunks",),
)

SEARCH_MEMORY = _tool(
    "search_memory",
    "Search earlier messages and the archive, within a period if you give one. "
    "The search matches words: give words that were probably used. Without words, the newest items are returned.",
    {
        "convo_keyword_queries": _texts("Words to search for, such as a name, a place or a number."),
        "start_minutes_ago": _number(
            "Only items that are at least this many minutes old: the newer end of the period."
        ),
        "end_minutes_ago": _number("Only items that are at most this many minutes old: the older end of the period."),
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
        "file_text": _text("For create: the initial text of the block."),
        "description": _text("For create and rename: what the block is for."),
        "old_string": _text("For str_replace: the text to replace, exactly as it is in the block."),
        "new_string": _text("For str_replace: the new text."),
        "insert_line": _number("For insert: insert after this line; 0 for the top, -1 (the default) for the end."),
        "insert_text": _text("For insert: the text to insert."),
        "old_path": _text("For rename: the current path of the block."),
        "new_path": _text("For rename: the new path of the block."),
    },
    ("command",),
)

FACT_SEARCH = _tool(
    "fact_search",
    "Search the facts learned from your conversations. Outdated facts are listed after the facts that replaced them. "
    "With a time, only facts that were true at that time are returned.",
    {
        "query": _text("What to search for: words that were probably used, or words with the same meaning."),
        "at": _text(f"Return what was true at this time instead of now. {_DATE}"),
        "limit": _number("Maximum number of facts to return. Default: 5."),
    },
    ("query",),
)

MEMORY_APPLY_PATCH = _tool(
    "memory_apply_patch",
    "Make several memory edits at once; either all of them are applied or none. "
    "For one block, give hunks like those of a unified diff: lines that start with ' ' are kept, lines with '-' are "
    "removed, lines with '+' are added; '@@' separates hunks. For several blocks, put a header before each part: "
    "'*** Add Block: label' (every line starts with '+'), '*** Update Block: label' (followed by hunks, or by "
    "'*** Move to: label' and hunks to rename it) or '*** Delete Block: label'. A line 'Description: text' directly "
    "after a header sets the description.",
    {
        "label": _text("The block to which hunks without a header apply."),
        "patch": _text("The patch."),
    },
    ("label", "patch"),
)

_OTHER = "The id of the other agent, such as agent-123e4567-e89b-42d3-a456-426614174000."

SEND_MESSAGE_TO_AGENT_AND_WAIT_FOR_REPLY = _tool(
    "send_message_to_agent_and_wait_for_reply",
    "Send a message to another agent and wait for its answer, which this tool returns. The other agent sees who sent "
    "the message.",
    {"message": _text("The message to the other agent."), "other_agent_id": _text(_OTHER)},
    ("message", "other_agent_id"),
)

SEND_MESSAGE_TO_AGENTS_MATCHING_TAGS = _tool(
    "send_message_to_agents_matching_tags",
    "Send the same message to all agents with certain tags and wait for their answers. An agent is included if it has "
    "every tag in 'match_all' and, unless 'match_some' is empty, at least one tag in 'match_some'.",
    {
        "message": _text("The message to each agent."),
        "match_all": _texts("Tags that an agent must have, all of them. May be empty."),
        "match_some": _texts("Tags of which an agent must have at least one. May be empty."),
    },
    ("message", "match_all", "match_some"),
)

SEND_MESSAGE_TO_AGENT_ASYNC = _tool(
    "send_message_to_agent_async",
    "Send a message to another agent without waiting for an answer. The other agent reads it in a separate turn and "
    "sees who sent it. If it answers, you receive the answer as a message.",
    {"message": _text("The message to the other agent."), "other_agent_id": _text(_OTHER)},
    ("message", "other_agent_id"),
)

_KEY = "The key, such as tasks/today. Any printable text of up to 256 characters."
_TTL = "Number of seconds after which the entry expires."
_IF_VERSION = "Apply the change only if the entry still has this version; 0: only if the key does not exist."


def _measure(description: str) -> Schema:
    return {"type": "number", "description": description}


WORKING_MEMORY_SET = _tool(
    "working_memory_set",
    "Store a value under a key in your working memory, which is not in your context: notes on the current task, "
    "counters, lists. An existing value and its expiry are replaced.",
    {
        "key": _text(_KEY),
        "value": {"description": "Any JSON value: text, number, true or false, list, object."},
        "ttl_seconds": _measure(f"{_TTL} Default: the entry does not expire."),
        "if_version": _number(_IF_VERSION),
    },
    ("key", "value"),
)

WORKING_MEMORY_GET = _tool(
    "working_memory_get",
    "Read the value of a key in your working memory, with its version and its timestamps.",
    {"key": _text(_KEY)},
    ("key",),
)

WORKING_MEMORY_LIST = _tool(
    "working_memory_list",
    "List your working memory by key, or newest first when you give a time. Long values are shortened.",
    {
        "prefix": _text("Only keys that begin with this text."),
        "updated_from": _text(f"Only entries written from this time on. {_DATE}"),
        "updated_to": _text(f"Only entries written up to this time; a date includes the whole day. {_DATE}"),
        "limit": _number("Maximum number of entries to return: 1 to 100. Default: 20."),
        "after": _text("Continue after this key, which an earlier list returned as 'more_after'."),
    },
    (),
)

WORKING_MEMORY_UPDATE = _tool(
    "working_memory_update",
    "Change the current value of a key in one of three ways: 'increment' a number, 'append' to a list, "
    "'merge' into an object. A missing key starts as 0, an empty list or an empty object. "
    "With only 'ttl_seconds', the expiry is changed and the value stays.",
    {
        "key": _text(_KEY),
        "increment": _measure("The amount to add to the number; negative to subtract."),
        "append": {"description": "The item to add to the end of the list: any JSON value."},
        "merge": {"type": "object", "description": "Members to set in the object; null removes a member."},
        "ttl_seconds": _measure(f"{_TTL} Default: the expiry does not change."),
        "if_version": _number(_IF_VERSION),
    },
    ("key",),
)

WORKING_MEMORY_DELETE = _tool(
    "working_memory_delete", "Delete a key from your working memory.", {"key": _text(_KEY)}, ("key",)
)

RUN_CODE = _tool(
    "run_code",
    "Run code in a sandbox. Returns its output, its exit code and its running time. There is no network access, and "
    "nothing is kept between calls. With the environment variables LETTA_AGENT_ID, LETTA_BASE_URL and LETTA_API_KEY "
    "the code can call this server on your behalf.",
    {
        "code": _text("The complete program. You see what it prints."),
        "language": {
            "type": "string",
            "enum": ["python", "js", "ts", "r", "java"],
            "description": "Programming language. Default: detected from the code.",
        },
    },
    ("code",),
)

RUN_CODE_WITH_TOOLS = _tool(
    "run_code_with_tools",
    "Run Python code in a sandbox in which your other tools are available as functions with the same names and "
    "arguments. Use it to call tools many times, or to process their results. A tool that fails raises ToolFailed.",
    {"code": _text("The complete program. You see what it prints.")},
    ("code",),
)

SHELL = _tool(
    "shell",
    "Run a command with sh, in a sandbox without network access. The working directory contains your own files, which "
    "are kept between calls. Returns the output, the exit code and the running time.",
    {"command": _text("The command; may have several lines.")},
    ("command",),
)

FILESYSTEM = _tool(
    "filesystem",
    "Read, write, list and delete your own files, which are kept between calls.",
    {
        "operation": {
            "type": "string",
            "enum": ["read", "write", "append", "list", "delete"],
            "description": "'write' replaces the content of the file; 'delete' removes a file or an empty directory.",
        },
        "path": _text("Path of the file or directory, relative to your top directory. Default: the top directory."),
        "content": _text("The text to write or append."),
        "start_line": _number("First line to read, starting at 1."),
        "lines": _number("Number of lines to read. Default: all."),
    },
    ("operation",),
)

WEB_SEARCH = _tool(
    "web_search",
    "Search the web. Returns the title, the URL, the relevant content and the score of each result.",
    {
        "query": _text("What to search for."),
        "num_results": _number("Number of results: 1 to 100. Default: 10."),
        "category": {
            "type": "string",
            "enum": [
                "company",
                "research paper",
                "news",
                "pdf",
                "github",
                "tweet",
                "personal site",
                "linkedin profile",
                "financial report",
            ],
            "description": "Search only pages of this kind.",
        },
        "include_text": {
            "type": "boolean",
            "description": "Return the full text of the pages, which may be long. Default: false.",
        },
        "include_domains": _texts("Search only these domains."),
        "exclude_domains": _texts("Leave out these domains."),
        "start_published_date": _text("Only pages published from this date on (ISO 8601)."),
        "end_published_date": _text("Only pages published up to this date (ISO 8601)."),
        "user_location": _text("Two-letter code of the country whose results you want, such as US."),
        "search_depth": {
            "type": "string",
            "enum": ["basic", "advanced"],
            "description": "'advanced' takes longer and returns more relevant content. Default: basic.",
        },
    },
    ("query",),
)

FETCH_WEBPAGE = _tool(
    "fetch_webpage",
    "Fetch a web page or PDF and return its text as Markdown.",
    {"url": _text("The URL of the page, which must be public.")},
    ("url",),
)

OPEN_FILES = _tool(
    "open_files",
    "Open files, or parts of files, so that your prompt shows their content. Names include the folder, such as "
    "docs/plan.md. When too many files are open, those that you have not used for longest are closed.",
    {
        "file_requests": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file_name": _text("Name of the file, with its folder."),
                    "offset": _number("Number of lines to skip, starting at 0. Default: 0."),
                    "length": _number("Number of lines to show. Default: all that follow."),
                },
                "required": ["file_name"],
            },
            "description": "The files to open.",
        },
        "close_all_others": {
            "type": "boolean",
            "description": "Close all other files first. Default: false.",
        },
    },
    ("file_requests",),
)

GREP_FILES = _tool(
    "grep_files",
    "Find the lines of your files that match a pattern, 20 matches at a time. The result counts the matches of each "
    "file, shows each match with the lines around it, and names the offset of the next page.",
    {
        "pattern": _text("A regular expression, or plain words."),
        "include": _text("A regular expression for the names of the files to search. Default: all files."),
        "context_lines": _number("Number of lines to show before and after each match. Default: 1."),
        "offset": _number("Number of matches to skip, for the next page: 20, 40 and so on. Default: 0."),
    },
    ("pattern",),
)

SEMANTIC_SEARCH_FILES = _tool(
    "semantic_search_files",
    "Find the parts of your files that fit a query by meaning and by words.",
    {
        "query": _text("What to look for."),
        "limit": _number("Maximum number of results. Default: 5."),
    },
    ("query",),
)
