"""Codes of limits that were reached; each says which setting moves it."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "address_connections_full",
        "The address has as many connections to the server as one may have.",
        "Close some, or raise `KELPIE_ADDRESS_CONNECTIONS_MAX`.",
    ),
    Code(
        "agent_slots_full",
        "All slots for active agents were busy for too long.",
        "Try again, or raise `KELPIE_HOT_AGENTS_MAX`.",
    ),
    Code(
        "agent_unloading",
        "The agent is being unloaded.",
        "Try again.",
    ),
    Code(
        "agents_stopping",
        "The server is shutting down and takes no more messages.",
        "Send it again when the server is back.",
    ),
    Code(
        "agents_waiting_full",
        "Too many agents wait to be loaded.",
        "Try again, or raise `KELPIE_HOT_AGENTS_MAX`.",
    ),
    Code(
        "callbacks_full",
        "Too many callbacks of runs wait. The server tries them again.",
    ),
    Code(
        "code_waiting_full",
        "Too much tool code waits for answers of agents.",
        "Try again, or send a message that needs no answer.",
    ),
    Code(
        "connections_full",
        "The server has as many connections as it may have.",
        "Try again, or raise `KELPIE_CONNECTIONS_MAX`.",
    ),
    Code(
        "database_queue_full",
        "Too many calls wait for the database.",
        "Try again.",
    ),
    Code(
        "embedding_queue_full",
        "Too many calls wait for the embedding model, or one waited too long.",
        "Try again.",
    ),
    Code(
        "followers_full",
        "Too many clients follow the same run.",
        "Close one of the streams.",
    ),
    Code(
        "group_chats_full",
        "Too many groups process messages at once.",
        "Try again when one of them has finished.",
    ),
    Code(
        "logins_throttled",
        "Too many wrong passwords or keys came from this address.",
        "Wait as long as `Retry-After` says, and check the key.",
    ),
    Code(
        "mailbox_full",
        "As many messages wait for the agent as `KELPIE_MAILBOX_SIZE` allows.",
        "Wait until some are answered.",
    ),
    Code(
        "package_installs_full",
        "Too many package installations wait, or one waited too long.",
        "Try again.",
    ),
    Code(
        "password_checks_full",
        "Too many passwords are being checked at once.",
        "Try again. Use an API key instead of the password.",
    ),
    Code(
        "processor_share_used",
        "The organization used more than its share of the processor while others needed it.",
        "Wait as long as `Retry-After` says.",
    ),
    Code(
        "provider_limit_reached",
        "A limit on calls, tokens or money of the model provider is reached. `detail` names it.",
        "Wait as long as `Retry-After` says, or raise the [limit](models.md).",
    ),
    Code(
        "quota_exceeded",
        "The organization stores as much as its quota allows. `quota` has the numbers.",
        "Delete something, or raise the setting that `quota` names.",
    ),
    Code(
        "rate_exceeded",
        "The organization made more requests in a minute than its quota allows. `quota` has the numbers.",
        "Wait as long as `Retry-After` says, or raise `KELPIE_QUOTA_REQUESTS_PER_MINUTE`.",
    ),
    Code(
        "reader_queue_full",
        "Too many uploaded files or pages of the organization wait to be read.",
        "Try again.",
    ),
    Code(
        "sandbox_full",
        "Too many tool calls wait for the sandbox, or one waited too long.",
        "Try again, or raise `KELPIE_SANDBOX_CELLS_MAX`.",
    ),
    Code(
        "search_queue_full",
        "Too many searches wait, or one waited too long.",
        "Try again.",
    ),
    Code(
        "web_downloads_full",
        "Too many downloads of pages wait, or one waited too long. The model is told.",
        "Try again.",
    ),
    Code(
        "web_search_full",
        "Too many web searches of tools wait, or one waited too long. The model is told.",
        "Try again.",
    ),
)
