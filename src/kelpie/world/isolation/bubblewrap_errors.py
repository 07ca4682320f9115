"""What it means when bubblewrap cannot build a cell, in words that name the remedy."""

NAMESPACES = (
    "let this user make namespaces: sysctl user.max_user_namespaces=15000; on Debian also "
    "kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
)
CONTAINER = (
    "a container must let it: `docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined`, "
    "`podman run --security-opt unmask=ALL`"
)
UNKNOWN = "`kelpie doctor --isolation` tries each part and says what to change"
_CAUSES = (
    (("max_user_namespaces: Read-only",), f"leave ProtectKernelTunables off in its unit of systemd; {CONTAINER}"),
    (("mount proc",), CONTAINER),
    (("namespace", "user ns", "uid map", "gid map"), f"Either {NAMESPACES}; or {CONTAINER}"),
)


def trouble(told: str) -> str:
    """A sentence on what bubblewrap said last."""
    reason = told.strip().splitlines()[-1] if told.strip() else "it ended without a word"
    remedy = next((remedy for words, remedy in _CAUSES if any(word in reason for word in words)), UNKNOWN)
    return f"code cannot be isolated on this server: bubblewrap failed ({reason}). {remedy[0].upper()}{remedy[1:]}"
