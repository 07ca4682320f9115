"""Commands of pip, uv and npm that install packages without running any of their code.

They take wheels only and run no scripts. A package can still name another by an address, and pip would build that one
from its source, and npm would call git for it; so pip may start no program at all, and npm finds no git. Of the
server's environment both get what leads to the index, and nothing else.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from kelpie.core.tools.package_requirements import Index, RequiredPackages

TEMPORARY = ".temporary"  # in the directory that is installed into, so that all of it is seen and goes with it

_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PASSED_TOO = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PREFIXES = ("PIP_", "UV_", "NPM_CONFIG_")
_PIP = """
import runpy, sys
def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"):
        raise PermissionError(1, "a package without a wheel would have to be built, which runs its code: refused")
sys.addaudithook(refuse)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
# The default index when nothing is set; a pip that stores this elsewhere lists only what is set.
_PIP_SETTINGS = (
    """
try:
    from pip._internal.models.index import PyPI
    print(PyPI.simple_url, "https://" + PyPI.file_storage_domain, flush=True)
except (ImportError, AttributeError):
    pass
"""
    + _PIP
)


def command(wanted: RequiredPackages, into: Path) -> list[str]:
    """The command that installs a set of packages into a directory."""
    if wanted.index is Index.npm:
        quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--git=/dev/null", "--omit=dev", "--loglevel=error")
        return ["npm", "install", *quiet, "--prefix", str(into), "--", *wanted.lines]
    wheels = ("--only-binary", ":all:", "--target", str(into))
    if _has_pip():
        pip = (sys.executable, "-I", "-c", _PIP, "install", "--no-input", "--disable-pip-version-check", "--quiet")
        return [*pip, *wheels, "--", *wanted.lines]
    return ["uv", "pip", "install", "--quiet", "--python", sys.executable, *wheels, "--", *wanted.lines]


def settings_command(index: Index) -> list[str] | None:
    """The command that lists the installer's settings and default index; None if it has no such command."""
    if index is Index.npm:
        return ["npm", "config", "list", "--json"]
    return [sys.executable, "-I", "-c", _PIP_SETTINGS, "config", "list"] if _has_pip() else None


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def environment(ours: Mapping[str, str], into: Path | None = None) -> dict[str, str]:
    """The part of the server's environment that an installer gets: paths and the settings of the index."""
    passed = {
        name: value
        for name, value in ours.items()
        if name.upper() in (*_PASSED, *_PASSED_TOO) or name.upper().startswith(_PREFIXES)
    }
    return passed if into is None else passed | {"TMPDIR": str(into / TEMPORARY)}
