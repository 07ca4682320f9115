"""Commands that fetch a package and run a program of it, as npx and uvx do: what they install, and what they start.

Kelpie installs the package itself, once, and starts the program without a network. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kelpie.core.errors import InvalidInput
from kelpie.core.tools.package_requirements import Index, RequiredPackages, needed, written

_ANY = ("latest", "next", "*")
_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]")  # where an extra or a version begins: "name[extra]==1.0"
_NPX_FLAGS = frozenset({"-y", "--yes", "-q", "--quiet", "--prefer-offline", "--prefer-online"})
_UVX_FLAGS = frozenset({"-q", "--quiet", "--isolated", "--no-cache", "-n", "--refresh", "--native-tls"})
_UVX_IGNORED = frozenset({"--python", "-p"})  # with a value: Kelpie's own Python runs the program


@dataclass(frozen=True, slots=True)
class PackagedCommand:
    """`package` is the name of the package that has the program; without a `program`, its only or main one runs."""

    wanted: RequiredPackages
    package: str
    program: str | None
    args: tuple[str, ...]


def packaged(command: str, args: Sequence[str]) -> PackagedCommand | None:
    """The package behind a command; None for a command that is a program itself. Raises InvalidInput."""
    name = PurePosixPath(command).name
    if name == "npx":
        return _npx(args)
    if name == "uvx":
        return _uvx(args)
    if name == "uv" and tuple(args[:2]) == ("tool", "run"):
        return _uvx(args[2:])
    if name == "pipx" and tuple(args[:1]) == ("run",):
        return _uvx(args[1:])
    return None


def _npx(args: Sequence[str]) -> PackagedCommand:
    packages, rest = list[str](), list(args)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        name, equals, value = option.partition("=")
        if name in ("-p", "--package"):
            packages.append(value if equals else _value(rest, option))
        elif option not in _NPX_FLAGS:
            raise _unknown("npx", option)
    if not rest:
        raise InvalidInput("config.args", "npx needs the name of a package")
    program = rest.pop(0)
    if not packages:
        return _command(Index.npm, [program], None, rest)
    return _command(Index.npm, packages, program, rest)


def _uvx(args: Sequence[str]) -> PackagedCommand:
    source, others, rest = None, list[str](), list(args)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        name, equals, value = option.partition("=")
        if name in ("--from", "--spec"):
            source = value if equals else _value(rest, option)
        elif name in ("--with", "-w"):
            others.append(value if equals else _value(rest, option))
        elif name in _UVX_IGNORED:
            if not equals:
                _value(rest, option)
        elif option not in _UVX_FLAGS:
            raise _unknown("uvx", option)
    if not rest:
        raise InvalidInput("config.args", "uvx needs the name of a package")
    first, _, version = rest.pop(0).partition("@")
    pinned = f"{first}=={version}" if version and version not in _ANY else first
    return _command(Index.pip, [source or pinned, *others], _NOT_NAME.split(first)[0], rest)


def _command(index: Index, packages: Sequence[str], program: str | None, args: Sequence[str]) -> PackagedCommand:
    given = [_without_tag(written(index, text)) for text in packages]
    package = (given[0]["name"] or "").partition("[")[0]
    return PackagedCommand(needed(index, given), package, program, tuple(args))


def _without_tag(requirement: dict[str, str | None]) -> dict[str, str | None]:
    return {**requirement, "version": None} if requirement["version"] in _ANY else requirement


def _value(rest: list[str], option: str) -> str:
    if not rest:
        raise InvalidInput("config.args", f"{option} needs a value")
    return rest.pop(0)


def _unknown(program: str, option: str) -> InvalidInput:
    return InvalidInput("config.args", f"the option {option[:40]} of {program} is not supported; leave it out")
