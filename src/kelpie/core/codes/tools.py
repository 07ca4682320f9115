"""Codes of tools, the sandbox and its network."""

from kelpie.core.codes.code import Code

CODES = (
    Code(
        "builtin_tool_shadowed",
        "An organization has a custom tool with the name of a built-in tool. Its agents use the custom tool.",
        "Rename the custom tool to get the built-in one.",
    ),
    Code(
        "cell_prestart_failed",
        "A sandbox cell could not be started in advance. Tool calls start their own.",
        "Look at `error`; run `kelpie doctor`.",
    ),
    Code(
        "cell_requests_late",
        (
            "API requests of tool code were still running `waited_s` seconds after its call had ended. The server "
            "waits for them no longer."
        ),
    ),
    Code(
        "egress_address_refused",
        "A tool asked for a host whose address is not public, or belongs to this machine.",
        "If tools may reach private networks, set `KELPIE_EGRESS_PRIVATE`.",
    ),
    Code(
        "egress_host_not_permitted",
        "A tool asked for a host that `limits.egress` does not list.",
        "If tools may reach it, add the host to the setting.",
    ),
    Code(
        "egress_host_refused",
        "A tool asked for a host that is not on its allow list.",
        "If the tool may, add the host to its permissions.",
    ),
    Code(
        "isolation_missing",
        "Tool code runs without isolation: this machine cannot isolate it, and `sandbox.isolation` is `none`.",
        "Follow `reason`; see [security](security.md).",
    ),
    Code(
        "isolation_optional",
        "`sandbox.isolation` is `none`, so tool code runs even where it cannot be isolated.",
        "Remove the setting unless you trust all tools.",
    ),
    Code(
        "leftover_cells_ended",
        "A server that was killed left sandbox cells running. They were ended.",
    ),
    Code(
        "package_install_failed",
        "The packages that a tool needs could not be installed.",
        "Look at `error`; correct the tool's requirements.",
    ),
    Code(
        "package_install_started",
        "The packages that a tool needs are being installed.",
    ),
    Code(
        "sandbox_cap_exceeded",
        "A tool asks for more than the operator allows in the sandbox.",
        "Ask for less, or raise the setting that `detail` names.",
    ),
    Code(
        "sandbox_limits_per_process",
        "Memory and CPU limits hold for each process of a tool, not for all of them together.",
        "Give the server a control group; see [security](security.md).",
    ),
    Code(
        "sandbox_runs_as_root",
        "Sandboxed tools run as root on the host side.",
        "Follow `remedy`.",
    ),
    Code(
        "tool_call_not_recorded",
        "A tool call was abandoned, and its record could not be written.",
        "Check the disk.",
    ),
    Code(
        "tool_call_refused",
        "A tool call was refused by a permission or a limit. `by` and `reason` say which.",
        "Change the [permissions](permissions.md) if it should be allowed.",
    ),
    Code(
        "tool_not_runnable",
        "A tool was stored although it cannot run on this server yet.",
        "Look at `error`; run `kelpie doctor`.",
    ),
    Code(
        "tool_policy_changed",
        "A user changed the tool policy of an organization.",
        "Check that the change was intended.",
    ),
    Code(
        "tool_request_refused",
        "Code of a tool asked the API for something its agent may not reach.",
        "Change the [permissions](permissions.md) if it should be allowed.",
    ),
    Code(
        "tool_syntax_unchecked",
        "The syntax of a tool could not be checked, because no sandbox was available.",
        "Look at `error`; run `kelpie doctor`.",
    ),
    Code(
        "web_search_rejected",
        "A search provider rejected the key of this server, or SearXNG does not allow the format `json`.",
        "Check the key; see [web access](web.md).",
    ),
    Code(
        "workspace_cleanup_failed",
        "The workspaces of deleted agents could not be removed. The server tries again.",
        "Check the permissions of the data directory.",
    ),
    Code(
        "workspace_owner_unchanged",
        "A tool runs as root on the host side, because its workspace is on a disk that does not keep owners.",
        "Put the data directory on a disk that keeps owners.",
    ),
)
