"""Codes of MCP servers."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "mcp_closed",
        "The connection to the MCP server, or its process, ended in the middle of a request.",
        "Look at the output of the MCP server.",
    ),
    Code(
        "mcp_file_unusable",
        "The servers of `mcp.file` could not be registered. The server runs without them.",
        "Look at `error`; correct the file and restart, or run `kelpie mcp add --file`.",
    ),
    Code(
        "mcp_left_alone",
        "The MCP server failed several times in a row and is not asked for a while.",
        "Wait, or mend it and refresh it.",
    ),
    Code(
        "mcp_malformed",
        "The answer of the MCP server is not valid MCP.",
        "Update the MCP server.",
    ),
    Code(
        "mcp_message_lost",
        "An MCP server did not take a message that gets no answer.",
    ),
    Code(
        "mcp_notifications_lost",
        "An MCP server stopped sending notifications. The server asks for them again.",
    ),
    Code(
        "mcp_refused",
        "The MCP server answered with an error. The message has its words.",
        "Follow the message.",
    ),
    Code(
        "mcp_request_failed",
        "A request of a client failed because an MCP server did.",
        "Look at `error`; run `kelpie mcp show`.",
    ),
    Code(
        "mcp_server_connected",
        "A connection to an MCP server was made, with the protocol `version`.",
    ),
    Code(
        "mcp_server_left_alone",
        "An MCP server failed several times in a row. It is not asked for `seconds`.",
        "Look at `error`; check the server.",
    ),
    Code(
        "mcp_server_recovered",
        "An MCP server that had been left alone works again.",
    ),
    Code(
        "mcp_session_kept",
        "An MCP server did not take the end of its session.",
    ),
    Code(
        "mcp_stream_silent",
        "An MCP server has not opened its stream of notifications yet. Its tools are called meanwhile.",
    ),
    Code(
        "mcp_task_lookup_failed",
        "The tasks of MCP servers could not be read. The server tries again.",
        "Check the disk.",
    ),
    Code(
        "mcp_timed_out",
        "The MCP server did not answer in time.",
        "Try again, or raise the time limit that the message names.",
    ),
    Code(
        "mcp_token_unsaved",
        "A renewed token of an MCP server could not be stored. The server uses it and tries again until it stops.",
        "Check the disk; log in again with `kelpie mcp login` after a restart.",
    ),
    Code(
        "mcp_too_large",
        "The answer of the MCP server is too large.",
        "Ask the tool for less.",
    ),
    Code(
        "mcp_tools_changed",
        "The tools of an MCP server changed and were read again.",
    ),
    Code(
        "mcp_tools_refused",
        "An MCP server has tools that cannot be offered to models; `tools` says why.",
        "Tell the author of the server.",
    ),
    Code(
        "mcp_tools_unread",
        "The tools of an MCP server could not be read. After a change the server tries again a few times.",
        "Look at `error`; run `kelpie mcp refresh` later.",
    ),
    Code(
        "mcp_unauthorized",
        "The MCP server wants a token, or another one.",
        "Log in with `kelpie mcp login`, or set the token of the server.",
    ),
    Code(
        "mcp_unreachable",
        "The MCP server cannot be started or connected to.",
        "Check its command or URL. See [MCP](mcp.md).",
    ),
)
