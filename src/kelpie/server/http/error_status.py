"""The HTTP status of every error code. docs/errors.md lists the two with their meaning."""

from collections.abc import Mapping
from types import MappingProxyType

_BY_STATUS: dict[int, tuple[str, ...]] = {
    400: (
        "context_window_overflow_in_system_prompt", "invalid_id", "invalid_input", "invalid_request", "length_invalid",
        "llm_bad_request", "llm_context_overflow", "parameter_unsupported", "setting_wrong", "url_invalid",
    ),
    401: ("llm_authentication", "unauthorized"),
    402: ("llm_insufficient_credits",),
    403: ("access_forbidden", "host_refused", "page_refused"),
    404: ("not_found", "route_unknown", "version_not_found"),
    405: ("method_not_allowed",),
    408: ("body_late", "head_late", "mcp_timed_out"),
    409: ("agent_stopped", "conversation_busy", "pending_approval", "request_conflict"),
    410: ("object_gone", "route_retired"),
    413: ("answer_too_large", "body_too_large"),
    414: ("url_too_long",),
    415: ("file_type_unsupported",),
    422: ("request_contradictory", "sandbox_cap_exceeded", "validation_failed"),
    429: (
        "address_connections_full", "agent_slots_full", "agent_unloading", "agents_stopping", "agents_waiting_full",
        "callbacks_full", "code_waiting_full", "database_queue_full", "embedding_queue_full", "followers_full",
        "group_chats_full", "llm_rate_limit", "logins_throttled", "mailbox_full", "package_installs_full",
        "password_checks_full", "processor_share_used", "provider_limit_reached", "rate_exceeded", "reader_queue_full",
        "sandbox_full", "search_queue_full", "web_downloads_full", "web_search_full",
    ),
    431: ("headers_too_large",),
    500: ("internal_error", "llm_error", "llm_malformed", "secret_unreadable", "stored_row_damaged"),
    501: ("route_not_supported",),
    502: (
        "mcp_closed", "mcp_left_alone", "mcp_malformed", "mcp_refused", "mcp_too_large", "mcp_unauthorized",
        "mcp_unreachable",
    ),
    503: (
        "agent_not_loaded", "agent_taken_over", "commit_unknown", "connections_full", "database_damaged",
        "database_lost", "disk_full", "llm_connection", "server_stopping", "storage_busy", "storage_failed",
        "storage_unavailable", "turn_broken",
    ),
    504: ("llm_timeout",),
    507: ("quota_exceeded",),
}  # fmt: skip

STATUS: Mapping[str, int] = MappingProxyType({code: status for status, codes in _BY_STATUS.items() for code in codes})
