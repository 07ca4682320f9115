"""Settings of the sandbox: the number of jobs that run at once, their memory, and the number of jobs that wait."""

from dataclasses import dataclass

from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class SandboxSettings:
    """Settings of the sandbox that runs the code of tools."""

    sandbox_isolation: str = setting(
        "sandbox.isolation",
        "Minimum isolation of tool code: `process`, or `none` to run it without isolation where this machine supports "
        "none. With `none`, every tool can read and change everything that the server can; the server warns about it "
        "at start-up.",
        "KELPIE_SANDBOX_ISOLATION",
        default="process",
        choices=("process", "none"),
    )
    sandbox_cells_max: int = setting(
        "sandbox.cells_max",
        "Maximum number of sandboxes that run at once; each may use 256 MB unless its tool sets another limit. See "
        "also `sandbox.memory_mb_max`.",
        "KELPIE_SANDBOX_CELLS_MAX",
        default=16,
        low=1,
        high=1024,
    )
    sandbox_memory_mb_max: int = setting(
        "sandbox.memory_mb_max",
        "Maximum sum in megabytes of the memory limits of all running sandboxes; 0 is three quarters of this machine's "
        "memory. Half of it is for calls of models and clients, the rest for calls that come from other tools. A call "
        "waits until its own limit fits.",
        "KELPIE_SANDBOX_MEMORY_MB_MAX",
        default=0,
        low=0,
        high=16 * 1024 * 1024,
    )
    workspace_mb_max: int = setting(
        "sandbox.workspace_mb_max",
        "Maximum size in megabytes of an agent's workspace (the files of the tools `shell` and `filesystem`).",
        "KELPIE_WORKSPACE_MB_MAX",
        default=64,
        low=1,
        high=1_000_000,
    )
    sandbox_waiting_max: int = setting(
        "sandbox.waiting_max",
        "Maximum number of calls of one organization that wait for a sandbox; further calls are refused.",
        "KELPIE_SANDBOX_WAITING_MAX",
        default=256,
        low=0,
        high=100_000,
    )
    sandbox_warm_max: int = setting(
        "sandbox.warm_max",
        "Number of sandboxes to keep started for the next calls once tools run code, about 10 MB each; 0 for none.",
        "KELPIE_SANDBOX_WARM_MAX",
        default=4,
        low=0,
        high=256,
    )
