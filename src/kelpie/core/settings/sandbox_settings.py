"""The settings of the sandbox: how much code of tools runs at once, and how much waits."""

from dataclasses import dataclass

from kelpie.core.settings.declaration import setting
from kelpie.core.settings.server_settings import ServerSettings


@dataclass(frozen=True, slots=True)
class SandboxSettings(ServerSettings):
    sandbox_isolation: str = setting(
        "sandbox.isolation",
        "The least that holds code of tools: `process`, or `none` to run it with no walls where this machine cannot "
        "build any. With `none` every tool can read and change what the server can; the server warns at its start.",
        "KELPIE_SANDBOX_ISOLATION",
        default="process",
        choices=("process", "none"),
    )
    sandbox_cells_max: int = setting(
        "sandbox.cells_max",
        "How many pieces of code of tools run at once; each may take 256 MB unless its tool says otherwise.",
        "KELPIE_SANDBOX_CELLS_MAX",
        default=16,
        low=1,
        high=1024,
    )
    workspace_mb_max: int = setting(
        "sandbox.workspace_mb_max",
        "Megabytes that an agent may keep in its workspace, the files of its tools `shell` and `filesystem`.",
        "KELPIE_WORKSPACE_MB_MAX",
        default=64,
        low=1,
        high=1_000_000,
    )
    sandbox_waiting_max: int = setting(
        "sandbox.waiting_max",
        "How many more may wait for their turn; past that a call is refused.",
        "KELPIE_SANDBOX_WAITING_MAX",
        default=256,
        low=0,
        high=100_000,
    )
    sandbox_warm_max: int = setting(
        "sandbox.warm_max",
        "How many cells are kept started for the next call once tools run code, about 10 MB each; 0 keeps none.",
        "KELPIE_SANDBOX_WARM_MAX",
        default=4,
        low=0,
        high=256,
    )
