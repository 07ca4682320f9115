"""Explanations of bubblewrap's errors, with the remedy."""

NAMESPACES = (
    "allow this user to create namespaces: sysctl user.max_user_namespaces=15000; on Debian also "
    "kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
)
CONTAINER = (
    "in a container, allow it: `docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined`, "
    "`podman run --security-opt unmask=ALL`"
)
UNKNOWN = "`kelpie doctor --isolation` tests each feature and shows what to change"
_CAUSES = (
    (("max_user_namespaces: Read-only",), f"turn ProtectKernelTunables off in the systemd unit; {CONTAINER}"),
    (("mount proc",), CONTAINER),
    (("namespace", "user ns", "uid map", "gid map"), f"Either {NAMESPACES}; or {CONTAINER}"),
)


def explain(told: str) -> str:
    """A sentence on bubblewrap's last error message."""
    reason = told.strip().splitlines()[-1] if told.strip() else "it printed no error"
    remedy = next((remedy for words, remedy in _CAUSES if any(word in reason for word in words)), UNKNOWN)
    return f"code cannot be isolated on this server: bubblewrap failed ({reason}). {remedy[0].upper()}{remedy[1:]}"
