"""Changes of single settings in the text of kelpie.toml, which keep its comments, order and spacing.

Pure: `world.files.text_file` writes the file. tomlkit does the editing; only `kelpie config` imports this module.
"""

import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.declaration import Setting, Value
from kelpie.core.settings.settings import SETTINGS, Settings, resolve
from kelpie.core.settings.sources.toml_text import parse

_HEAD = """# Settings of Kelpie. Remove the `#` before a line to set it; every line shows the default.
# An environment variable takes precedence over this file. `kelpie config show` shows what is set.
"""


def with_value(text: str, path: str, spec: Setting, value: Value) -> str:
    """The text with this setting. Raises ConfigurationError, naming file and line, if the result would be wrong."""
    document = _parsed(text, path)
    *sections, name = spec.key.split(".")
    table: MutableMapping[str, Any] = document
    for place, section in enumerate(sections):
        if section not in table:
            table[section] = tomlkit.table(is_super_table=place < len(sections) - 1)
        table = cast("MutableMapping[str, Any]", table[section])
    table[name] = list(value) if isinstance(value, tuple) else value
    return _checked(text, tomlkit.dumps(document), path, spec.key)


def without_value(text: str, path: str, spec: Setting) -> str:
    """The text without this setting. Raises ConfigurationError, also when the text does not set it."""
    document = _parsed(text, path)
    *sections, name = spec.key.split(".")
    table: MutableMapping[str, Any] = document
    for section in sections:
        table = cast("MutableMapping[str, Any]", dict(table)[section]) if section in table else {}
    if name not in table:
        raise ConfigurationError(path, f"does not set {spec.key}")
    del table[name]
    return _checked(text, tomlkit.dumps(document), path, spec.key)


def check(text: str, path: str, env: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a text with which commands and the server would not start."""
    resolve({}, env, parse(text, path), path)


def template() -> str:
    """A new file: every setting with its help and its default, all of them commented out."""
    return _HEAD + "".join(_template_lines())


def _template_lines() -> Iterator[str]:
    section, defaults = "", Settings()
    for field, spec in sorted(SETTINGS.items(), key=lambda each: each[1].key.rpartition(".")[0]):
        heading, _, name = spec.key.rpartition(".")
        if heading != section:
            section = heading
            yield f"\n[{section}]\n"
        yield f"# {spec.help}\n#{name} = {_default(spec, getattr(defaults, field))}\n"


def _default(spec: Setting, value: Any) -> str:
    if value is None:
        return '""' if spec.kind is str else ""
    return tomlkit.item(list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value).as_string()


def _parsed(text: str, path: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError:
        parse(text, path)  # its error names the line
        raise ConfigurationError(path, "this is not TOML; repair it with `kelpie config edit`") from None


def _checked(old: str, new: str, path: str, key: str) -> str:
    """The new text, if it is valid and nothing but this setting changed."""
    parse(new, path)
    before, after = dict(_leaves(tomllib.loads(old))), dict(_leaves(tomllib.loads(new)))
    for found in (before, after):
        found.pop(key, None)
    if before != after:
        raise ConfigurationError(path, f"{key} cannot be changed in this layout; use `kelpie config edit`")
    return new


def _leaves(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), f"{before}{name}.")
        else:
            yield f"{before}{name}", value
