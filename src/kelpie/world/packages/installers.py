"""Commands of pip, uv and npm for a cell, and what of this machine they need in there.

They take wheels only and run no scripts of a package. Everything they write lies in the directory of the set: their
temporary files and caches as well, so that all of it is measured, and goes with it. No two installations share a cache:
one that a package could change would decide what the next set contains.
"""

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from kelpie.core.errors import ToolError
from kelpie.core.tools.confinement import PROXY_PORT, Mount
from kelpie.core.tools.package_requirements import Index, RequiredPackages
from kelpie.world.cells.mounts import INSIDE, interpreter, shown_paths

SET = "/set"  # the only directory in the cell that is on the disk and can be written to
TEMPORARY = ".temporary"
PIP_VERSION = "26.3"  # as constraints.txt pins it
NO_PYTHON_INSTALLER = "this server has neither pip nor uv; run `python -m ensurepip` in its environment"
NO_NPM = "this server has no npm; install the packages nodejs and npm"

_CODE = "/installer"
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_NO_BYPASS = "none.invalid"  # an empty list would be looked for elsewhere
# Environment variables by which the installers find the proxy.
PROXY_ENV = {
    **{name: _PROXY for each in ("http_proxy", "https_proxy", "all_proxy") for name in (each, each.upper())},
    **dict.fromkeys(("no_proxy", "NO_PROXY"), _NO_BYPASS),
}
_NPM = (
    "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--no-bin-links", "--git=/dev/null",
    "--omit=dev", "--loglevel=error", "--logs-max=0", "--no-progress", "--no-global", "--no-package-lock-only",
    "--omit-lockfile-registry-resolved=false", f"--cache={SET}/{TEMPORARY}/npm", f"--prefix={SET}",
    f"--proxy={_PROXY}", f"--https-proxy={_PROXY}", f"--noproxy={_NO_BYPASS}",
    "--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000",  # its own are 10 s and 60 s
)  # fmt: skip
_NPM_LISTS = (
    "package.json",
    "package-lock.json",
    "node_modules/.package-lock.json",
)  # they name addresses of the index


class Installer(StrEnum):
    """A program that installs packages."""

    pip = "pip"
    uv = "uv"
    npm = "npm"


@dataclass(frozen=True, slots=True)
class InstallerProgram:
    """An installer in a cell: its commands, one after the other, the mounts with its code, and files of the set that it
    removes in the end."""

    commands: Sequence[Sequence[str]]
    mounts: tuple[Mount, ...] = ()
    removed: Sequence[str] = ()


def installer_of(index: Index) -> Installer:
    """The installer for an index on this machine; pip before uv. Raises ToolError if there is none."""
    if index is Index.npm:
        if _npm() is None:
            raise ToolError(NO_NPM)
        return Installer.npm
    if pip_directory() is not None:
        return Installer.pip
    if _uv() is None:
        raise ToolError(NO_PYTHON_INSTALLER)
    return Installer.uv


def program(installer: Installer, wanted: RequiredPackages) -> InstallerProgram:
    """The program that installs a set of packages into `SET`. Raises ToolError if the installer is gone."""
    if installer is Installer.npm:
        return _npm_program(wanted.lines)
    wheels = ("--only-binary", ":all:", "--target", SET)
    if installer is Installer.uv:
        uv = f"{_CODE}/uv"
        options = (
            "--quiet",
            "--no-progress",
            "--link-mode",
            "copy",
            "--no-python-downloads",
            "--python",
            interpreter(),
        )
        cache = ("--cache-dir", f"{SET}/{TEMPORARY}/uv")
        return InstallerProgram(
            [[uv, "pip", "install", *options, *cache, *wheels, "--", *wanted.lines]],
            (Mount(_found(_uv()), uv),),
            [".lock"],
        )
    run = (interpreter(), "-I", "-S", f"{INSIDE}/pip_wheels.py", _CODE)
    options = ("--no-input", "--disable-pip-version-check", "--no-cache-dir", "--quiet")
    return InstallerProgram(
        [[*run, "install", *options, *wheels, "--", *wanted.lines]], (Mount(_found(pip_directory()), f"{_CODE}/pip"),)
    )


def _npm_program(lines: Sequence[str]) -> InstallerProgram:
    script = Path(_found(_npm()))
    mounts: tuple[Mount, ...] = ()
    if not any(script.is_relative_to(shown) for shown in shown_paths()):
        mounts = (Mount(str(script.parents[1]), f"{_CODE}/npm"),)
        script = Path(_CODE, "npm", *script.parts[-2:])
    npm = (_found(_node()), str(script))
    resolve = [*npm, "install", *_NPM, "--package-lock-only", "--", *lines]
    return InstallerProgram([resolve, [*npm, "ci", *_NPM]], mounts, _NPM_LISTS)


def pip_directory() -> str | None:
    """The directory of pip beside Kelpie."""
    found = importlib.util.find_spec("pip")
    return str(Path(found.origin).resolve().parent) if found is not None and found.origin else None


def pip_version() -> str | None:
    """The version of pip beside Kelpie."""
    try:
        return metadata.version("pip")
    except metadata.PackageNotFoundError:
        return None


def settings_command(installer: Installer) -> list[str] | None:
    """The command that lists the installer's settings and default index; None if it has no such command."""
    if installer is Installer.npm:
        nowhere = ("--logs-max=0", "--cache=/dev/null/none")  # else it makes a directory in the server's home
        return ["npm", "config", "list", "--json", *nowhere]
    return [sys.executable, "-I", "-c", _PIP_SETTINGS, "config", "list"] if installer is Installer.pip else None


# The default index when nothing is set; a pip that stores this elsewhere lists only what is set.
_PIP_SETTINGS = """
import runpy, sys
try:
    from pip._internal.models.index import PyPI
    print(PyPI.simple_url, "https://" + PyPI.file_storage_domain, flush=True)
except (ImportError, AttributeError):
    pass
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _uv() -> str | None:
    found = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    return str(Path(found).resolve()) if found else None


def _node() -> str | None:
    found = shutil.which("node")
    return str(Path(found).resolve()) if found else None


def _npm() -> str | None:
    """The script of npm, which `node` runs; also where the command is a shim of a version manager."""
    node, found = _node(), shutil.which("npm")
    if node is None or found is None:
        return None
    script = Path(found).resolve()
    if script.suffix != ".js":
        script = Path(node).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    return str(script) if script.is_file() else None


def _found(path: str | None) -> str:
    if path is None:
        raise ToolError("the server's package installer was removed while it was needed")
    return path
