"""Report on the package installers of this machine, for the operator."""

import re
import sys
from dataclasses import dataclass

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index
from kelpie.world.packages.installers import PIP_VERSION, Installer, installer_of, pip_version

OLD_PIP = "older than the tested version {}; run `{} -m pip install pip=={}`"


@dataclass(frozen=True, slots=True)
class InstallerReport:
    """The installer for one index: its name and version as far as known, and the remedy for a problem."""

    index: str
    installer: str | None
    version: str | None = None
    remedy: str | None = None


def installer_reports() -> list[InstallerReport]:
    """Reports on the installers of Python and of npm packages."""
    return [_report(index) for index in Index]


def _report(index: Index) -> InstallerReport:
    try:
        installer = installer_of(index)
    except ToolError as error:
        return InstallerReport(index.value, None, None, str(error))
    version = pip_version() if installer is Installer.pip else None
    remedy = None
    if version is not None and _numbers(version) < _numbers(PIP_VERSION):
        remedy = OLD_PIP.format(PIP_VERSION, sys.executable, PIP_VERSION)
    return InstallerReport(index.value, installer.value, version, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
