"""The built-in tools that run code, and their runners, by name."""

from collections.abc import Mapping

from kelpie.accounts.quotas.disk_usage import DiskUsage
from kelpie.sandbox.port import Sandbox
from kelpie.tools.calls.api_callback import ApiCallback
from kelpie.tools.calls.interface import ExternalTool
from kelpie.tools.code import run_code_with_tools
from kelpie.tools.code.filesystem import Filesystem
from kelpie.tools.code.run_code import CodeRunner
from kelpie.tools.code.shell import Shell
from kelpie.tools.code.workspace import Workspace
from kelpie.tools.custom.environments import Environments
from kelpie.world.world import World


def code_tools(
    world: World,
    sandbox: Sandbox | None,
    callback: ApiCallback,
    environments: Environments,
    workspace_mb_max: int,
    disk: DiskUsage,
) -> Mapping[str, ExternalTool]:
    """Every server has these tools; without a sandbox they return an error when they are called."""
    workspace = Workspace(world.workspaces, workspace_mb_max, disk)
    return {
        "run_code": CodeRunner(sandbox, callback, environments, world.workers).run_code,
        run_code_with_tools.NAME: run_code_with_tools.CodeWithTools(sandbox, callback, world.database),
        "shell": Shell(sandbox, callback, workspace),
        "filesystem": Filesystem(sandbox, workspace),
    }
