"""What this machine has that could keep tools apart from it, and what is installed beside Kelpie.

Only looked at, never tried: a thing that is there may still not work, and callers must say so.
"""

import os
import platform
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_TEXT_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that was looked for: whether it is there, and what was seen."""

    name: str
    present: bool
    seen: str


def isolation() -> list[Found]:
    """The means of isolation that this machine shows."""
    bubblewrap = shutil.which("bwrap")
    controllers = _text("/sys/fs/cgroup/cgroup.controllers")
    modules = _text("/sys/kernel/security/lsm")
    namespaces = _text("/proc/sys/user/max_user_namespaces").strip()
    runsc = shutil.which("runsc")
    return [
        Found("bubblewrap", bubblewrap is not None, bubblewrap or "no bwrap on the PATH"),
        Found("user namespaces", namespaces not in ("", "0"), f"at most {namespaces}" if namespaces else "not told"),
        Found("cgroups v2", bool(controllers), controllers.strip() or "no unified hierarchy at /sys/fs/cgroup"),
        Found("Landlock", "landlock" in modules, modules.strip() or "the kernel does not tell its security modules"),
        Found("gVisor", runsc is not None, runsc or "no runsc on the PATH"),
        Found("KVM", os.access("/dev/kvm", os.R_OK | os.W_OK), _kvm()),
    ]


def system() -> str:
    """The operating system and the Python that run this."""
    return f"{platform.system()} {platform.release()}, Python {platform.python_version()}"


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package: its version, and whether its files hold a server."""

    version: str
    is_server: bool


def letta() -> Package | None:
    """The package `letta` beside Kelpie, if one is installed; its later versions are no server any more."""
    try:
        found = metadata.distribution("letta")
    except metadata.PackageNotFoundError:
        return None
    files = found.files or []
    return Package(found.version, any(file.parts[:2] == ("letta", "server") for file in files))


def _kvm() -> str:
    if not Path("/dev/kvm").exists():
        return "no /dev/kvm"
    return "/dev/kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) else "/dev/kvm, but you may not use it"


def _text(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_TEXT_MAX)
    except OSError:
        return ""  # not there, or not for us
