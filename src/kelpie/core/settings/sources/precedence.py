"""Origin of a setting's value, and the order of precedence: flag, environment, file, default."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.settings.declaration import Setting, Value


class Source(StrEnum):
    flag = "flag"
    environment = "environment"
    file = "file"
    default = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """The kind of source, and its name: the option, the variable, or the file with its line."""

    source: Source
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.source.value


@dataclass(frozen=True, slots=True)
class SettingSource:
    """A value as it is written in a file, with its location."""

    value: Any
    where: str


def decide(
    table: Mapping[str, Setting],
    flags: Mapping[str, tuple[str, str]],
    env: Mapping[str, str],
    given: Mapping[str, SettingSource],
) -> tuple[dict[str, Value], dict[str, Origin]]:
    """The values that are set, and the origin of every setting. An empty variable counts as not set.

    Flags are keyed by field: option and text; values of a file are keyed by setting key. Raises ConfigurationError.
    """
    values: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for name, spec in table.items():
        variable = next((each for each in spec.env if env.get(each)), None)
        if name in flags:
            option, text = flags[name]
            values[name], origins[name] = spec.from_text(option, text), Origin(Source.flag, option)
        elif variable is not None:
            values[name] = spec.from_text(variable, env[variable])
            origins[name] = Origin(Source.environment, variable)
        elif spec.key in given:
            found = given[spec.key]
            values[name], origins[name] = spec.from_toml(found.where, found.value), Origin(Source.file, found.where)
        else:
            origins[name] = Origin(Source.default)
    return values, origins
