"""Declaration of one setting: its names, its default, its bounds, and its parsing from text or TOML.

The table of all settings is `core.settings.settings.Settings`: one line there declares a setting completely.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, field
from dataclasses import dataclass as _dataclass
from typing import Any, TypeAlias, cast

from kelpie.core.errors import ConfigurationError

Value: TypeAlias = str | int | float | bool | tuple[str, ...] | None
Check: TypeAlias = Callable[[str, Any], object]  # gets the origin and the value; raises ConfigurationError
SPEC = "setting"
SECONDS_MAX = 30 * 24 * 3600.0
BYTES_MAX = 1024**3
COUNT_MAX = 1_000_000
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@_dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    key: str  # in kelpie.toml: section and name
    help: str  # one sentence or two, for the documentation and `kelpie config show`
    env: tuple[str, ...]  # the first that is set counts
    kind: type
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    seconds: bool = False  # more than 0, and not for ever
    secret: bool = False  # never shown
    check: Check | None = None  # for what a text has to look like

    def from_text(self, origin: str, text: str) -> Value:
        """The value of an environment variable or an option. Raises ConfigurationError naming the origin and the
        remedy."""
        if self.kind is bool:
            return self._switch(origin, text)
        if self.kind is tuple:
            return self._checked(origin, tuple(part.strip() for part in text.split(",") if part.strip()))
        try:
            value = self.kind(text)
        except ValueError:
            raise ConfigurationError(origin, f"'{text[:80]}' is not {self._wanted()}") from None
        return self._checked(origin, value)

    def from_toml(self, origin: str, value: object) -> Value:
        """The value in kelpie.toml. Raises ConfigurationError naming the origin and the remedy."""
        if self.kind is float and type(value) is int:
            value = float(value)
        if self.kind is tuple and isinstance(value, list):
            items = cast("list[object]", value)
            texts = tuple(item for item in items if isinstance(item, str))
            value = texts if len(texts) == len(items) else items
        if type(value) is not self.kind:
            shown = "the value" if self.secret else _toml(value)
            raise ConfigurationError(origin, f"{shown} is not {self._wanted()}")
        return self._checked(origin, value)

    def _checked(self, origin: str, value: Any) -> Value:
        if self.choices and value not in self.choices:
            raise ConfigurationError(origin, f"'{value[:80]}' is not allowed; use {_either(self.choices)}")
        if self.seconds and not 0 < value <= SECONDS_MAX:  # this way round, not-a-number is refused too
            raise ConfigurationError(origin, f"use more than 0 seconds and at most {SECONDS_MAX:.0f}")
        if not (self.low is None or self.low <= value) or not (self.high is None or value <= self.high):
            raise ConfigurationError(origin, f"{value} is out of range; use {self._bounds()}")
        if self.check is not None:
            self.check(origin, value)
        return value

    def _bounds(self) -> str:
        if self.low is None or self.high is None:
            return f"at least {self.low:.16g}" if self.low is not None else f"at most {self.high:.16g}"
        return f"{self.low:.16g} to {self.high:.16g}"

    def _switch(self, origin: str, text: str) -> bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ConfigurationError(origin, f"'{text[:80]}' is not a switch; use true or false")
        return text.lower() in _TRUE

    def _wanted(self) -> str:
        return _WANTED[self.kind]


_WANTED = {
    str: "text; write it in quotes",
    int: "a whole number",
    float: "a number",
    bool: "a switch; use true or false",
    tuple: 'a list of texts; write it like ["one", "two"]',
}


def setting(
    key: str,
    help: str,
    *env: str,
    default: Any = None,
    kind: type | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    seconds: bool = False,
    secret: bool = False,
    check: Check | None = None,
) -> Any:
    """A field of `Settings` that declares its setting. `kind` defaults to the type of the default, or text."""
    kind = kind or (str if default is None else type(default))
    spec = Setting(key, help, env, kind, low, high, choices, seconds, secret, check)
    return field(default=default, metadata={SPEC: spec})


def specs(fields: tuple[Field[Any], ...]) -> Mapping[str, Setting]:
    """Field name -> its setting, in the order of the table."""
    return {each.name: each.metadata[SPEC] for each in fields}


def _toml(value: object) -> str:
    """The value as TOML text; long ones are cut."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value!r:.80}" if isinstance(value, str) else f"{value}"[:80]


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
