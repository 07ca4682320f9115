"""Codes of requests: refused because of what they are or who sends them, and what the server logs of them."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "access_forbidden",
        "The credential does not allow this.",
        "Use a key with the scope that `detail` names.",
    ),
    Code(
        "answer_too_large",
        "The answer of a turn is too large for one response. The turn is done.",
        "List the messages of the run that `detail` names.",
    ),
    Code(
        "authentication_failed",
        "A caller could not be authenticated because the key store cannot be read. The request got the `status`.",
        "Check the disk and the database file.",
    ),
    Code(
        "body_late",
        "The body of the request stopped for more than 60 seconds.",
        "Send the request again.",
    ),
    Code(
        "body_too_large",
        "The body is larger than the server accepts.",
        "Send less at once, or raise the setting that `detail` names.",
    ),
    Code(
        "connections_refused",
        (
            "Clients found no place, because the limit in `setting` is reached. `count` is their number since the "
            "last such line, `address` is the newest, `open` is the number of connections. Logged at most every 10 "
            "seconds."
        ),
        "See [connections](operations.md#connections).",
    ),
    Code(
        "file_type_unsupported",
        "The type of an uploaded file is not supported: neither its name nor its media type is that of a text.",
        "Convert the file to a supported type, or give it the ending of its type with the parameter `name`.",
    ),
    Code(
        "head_late",
        "The head of the request did not arrive in time.",
        "Send the request again. Behind a slow proxy, raise `KELPIE_HEAD_SECONDS`.",
    ),
    Code(
        "headers_too_large",
        "The headers have more than 64 KiB.",
        "Send fewer or shorter headers.",
    ),
    Code(
        "host_refused",
        "The server has no password, and the request names a host that is not this machine.",
        "Use the address of this machine, or give the server a password.",
    ),
    Code(
        "http_request",
        (
            "A request was answered. The facts are method, path, status and duration; of a refused request also the "
            "reason, and `ignored_fields` names fields of the request that Kelpie does not know."
        ),
    ),
    Code(
        "idle_connections_closed",
        (
            "A limit on connections is reached, and idle connections were closed to make room for new ones. `count` "
            "is their number since the last such line, `open` is the number of connections. Logged at most every 10 "
            "seconds."
        ),
        "See [connections](operations.md#connections).",
    ),
    Code(
        "internal_error",
        "A bug in Kelpie. The log has the traceback.",
        "Report it with the log line that has the `X-Request-Id` of the response.",
    ),
    Code(
        "invalid_id",
        "An id has the wrong form.",
        "Use the id as the API returned it, such as `agent-<uuid4>`.",
    ),
    Code(
        "invalid_input",
        "A value in the request is wrong. `detail` begins with the name of the field.",
        "Correct the field as `detail` says.",
    ),
    Code(
        "invalid_request",
        "The request cannot be carried out.",
        "Follow `detail`.",
    ),
    Code(
        "key_last_use_not_saved",
        "The time at which API keys were last used could not be written.",
        "Check the disk.",
    ),
    Code(
        "length_invalid",
        "`Content-Length` is not a number.",
        "Correct the header. An HTTP library sets it itself.",
    ),
    Code(
        "method_not_allowed",
        "The path exists, but not with this method.",
        "Use a method that `/docs` shows for the path.",
    ),
    Code(
        "not_found",
        "The object does not exist, or belongs to another organization.",
        "Check the id.",
    ),
    Code(
        "object_gone",
        "The object existed and is no longer stored.",
        "Start again without it, as `detail` says.",
    ),
    Code(
        "page_refused",
        "A web page of another site sent the request.",
        "Add its origin to the setting `server.allowed_origins`.",
    ),
    Code(
        "parameter_unsupported",
        "A parameter of OpenAI's API asks for something that agents cannot do.",
        "Follow `message`; docs/openai.md lists the parameters.",
    ),
    Code(
        "request_conflict",
        "The request conflicts with what is stored, such as a name that is taken.",
        "Follow `detail`. Sending the same request again does not help.",
    ),
    Code(
        "request_contradictory",
        "Two parts of the request contradict each other.",
        "Leave one of them out, as `detail` says.",
    ),
    Code(
        "request_crashed",
        "A bug ended a request. The client got status 500 if no answer had begun.",
        "Report it with the traceback.",
    ),
    Code(
        "request_failed",
        "A request failed with a status of 500 or above.",
        "Look at the traceback and `status`.",
    ),
    Code(
        "request_head_late",
        (
            "Connections were closed because no complete request head arrived within `KELPIE_HEAD_SECONDS`. `count` "
            "is their number since the last such line, `address` is the newest. Logged at most every 10 seconds."
        ),
        "If it comes often, somebody may be attacking the server.",
    ),
    Code(
        "route_not_supported",
        "Letta has this route and Kelpie does not. `detail` says why and what to use instead.",
        "See [Letta compatibility](letta-compatibility.md).",
    ),
    Code(
        "route_retired",
        "Letta retired this route, and so did Kelpie.",
        "Use the route that `detail` names.",
    ),
    Code(
        "route_unknown",
        "The server has no such path.",
        "Check the path. `/docs` lists all of them.",
    ),
    Code(
        "server_stopping",
        "The server stopped before the request was done. A turn that had started continues after the restart.",
        "List the messages of the agent before you send it again.",
    ),
    Code(
        "unauthorized",
        "The request has no valid credential.",
        "Send an API key as `Authorization: Bearer …`. See [authentication](auth.md).",
    ),
    Code(
        "url_invalid",
        "The URL contains a NUL character.",
        "Remove it.",
    ),
    Code(
        "url_too_long",
        "The path or the query of the URL is too long.",
        "Send several requests.",
    ),
    Code(
        "validation_failed",
        "The request does not match the schema of its route. `message` says it in sentences, `detail` as Letta does.",
        "Correct the fields that `message` names. `/docs` shows the schema.",
    ),
    Code(
        "version_not_found",
        "The object has no such version, or no longer stores it.",
        "Use one of the versions that `detail` names.",
    ),
)
