"""Templates: saved definitions of agents, their versions, and the variables in their texts.

The document of a version is an agent file without messages. A version with a number never changes. The current version
is what the next save will store: a saved version, or an unsaved one, which has the number 0.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kelpie.core.errors import InvalidInput
from kelpie.core.ids import TemplateId, TemplateVersionId
from kelpie.core.time import Micros

NAME_CHARS_MAX = 100
TEMPLATES_MAX = 1_000  # of an organization
VERSIONS_MAX = 500  # of a template
VERSION_BYTES_MAX = 2 * 1024 * 1024  # of the document of one version
ALL_BYTES_MAX = 64 * 1024 * 1024  # of all versions of a template
NOTE_CHARS_MAX = 2_000  # of the message that describes a version
VARIABLES_MAX = 200  # of a version
PLACES_MAX = 10_000  # of a version where a variable stands
VALUE_CHARS_MAX = 100_000  # of one variable
VALUES_CHARS_MAX = 1_000_000  # of all variables of an agent
FILLED_CHARS_MAX = 4_000_000  # of all texts of a version with the variables filled in

UNSAVED = 0  # the number of a current version that is not saved
LATEST = "latest"
CURRENT = ("current", "dev")
DEFAULT_PROJECT = "default-project"  # there is one project until there are more

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_CHARS_MAX - 1}}}")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.-]{0,99})\s*\}\}")


@dataclass(frozen=True, slots=True)
class Template:
    """`base` is the saved version that the current one is or was made from; `changed` if the current one is unsaved."""

    id: TemplateId
    name: str
    latest: int
    base: int
    created_at: Micros
    updated_at: Micros
    changed: bool = False
    description: str | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """A version without its document."""

    id: TemplateVersionId
    number: int
    variables: tuple[str, ...]
    size: int  # of the document, in bytes
    created_at: Micros
    message: str | None = None
    created_by_id: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a template with its document."""

    template: Template
    version: TemplateVersion
    document: str


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A document to store, and the variables in it."""

    document: str
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionName:
    """A version as clients name it: `name`, `name:3`, `name:latest` or `name:current`, with or without the project in
    front. `number` is None for the latest."""

    template: str
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> "VersionName":
        """Raises InvalidInput for a version that is no number or word, and for another project."""
        full, _, version = without_project(text).partition(":")
        return cls(full, version_number(version, "template_version") if version else None)


def without_project(text: str) -> str:
    """The name without the project in front of it. Raises InvalidInput for a project that is not there."""
    project, slash, name = text.rpartition("/")
    if slash:
        check_project(project)
    return name


def check_project(slug: str) -> None:
    """Raises InvalidInput for a project that is not there."""
    if slug != DEFAULT_PROJECT:
        raise InvalidInput("project", f"'{slug[:80]}' is unknown; this server has one project, '{DEFAULT_PROJECT}'")


def version_number(text: str, field: str) -> int | None:
    """The number that a version is named by; None for the latest. Raises InvalidInput."""
    if text == LATEST:
        return None
    if text in CURRENT:
        return UNSAVED
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 10 or int(text) == 0:
        raise InvalidInput(
            field, f"the version '{text[:80]}' must be a number such as 1, or '{LATEST}', or '{CURRENT[0]}'"
        )
    return int(text)


def check_name(name: str) -> str:
    """Raises InvalidInput for a name that could not be part of an address."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "name",
            f"must have 1 to {NAME_CHARS_MAX} letters, digits, dots, hyphens or underscores, and begin with a letter "
            "or a digit",
        )
    return name


# --- variables --------------------------------------------------------------------------------------------------------


def variables_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The names of the variables in these texts, sorted, one for each place where it stands."""
    return tuple(sorted(name for text in texts for name in _VARIABLE.findall(text)))


def check_values(values: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises InvalidInput for a variable that the template does not have, and for values that are too long."""
    names = sorted(known)
    for name, value in values.items():
        if name not in names:
            have = f"it has {', '.join(names[:20])}" if names else "it has none"
            raise InvalidInput(f"memory_variables.{name[:80]}", f"is not a variable of this template; {have}")
        if len(value) > VALUE_CHARS_MAX:
            raise InvalidInput(
                f"memory_variables.{name}", f"has {len(value)} characters; at most {VALUE_CHARS_MAX} are allowed"
            )
    if (total := sum(map(len, values.values()))) > VALUES_CHARS_MAX:
        raise InvalidInput(
            "memory_variables", f"have {total} characters together; at most {VALUES_CHARS_MAX} are allowed"
        )


def filled_chars(text: str, values: Mapping[str, str]) -> int:
    """Length of the text with its variables filled in, without building it."""
    found = _VARIABLE.finditer(text)
    return len(text) + sum(len(values.get(each[1], "")) - len(each[0]) for each in found)


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables filled in. One without a value becomes empty; variables in a value stay as they
    are."""
    return _VARIABLE.sub(lambda found: values.get(found[1], ""), text) if "{{" in text else text
