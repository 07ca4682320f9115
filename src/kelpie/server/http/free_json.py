"""Types of fields that hold any JSON, bounded in bytes, values and depth wherever they are stored.

Whatever is stored is read again for every list that shows it, so a small request must not be able to make later answers
large. A value beyond a limit is a 422 that names the field and the limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import AfterValidator, BeforeValidator, Field

from kelpie.server.http.json_size import has_more_values, is_deeper

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JsonLimit:
    """Limits of one field."""

    bytes_max: int
    values_max: int
    depth_max: int = 32

    def check(self, value: Any) -> None:
        """Raises ValueError that names the limit."""
        raw = orjson.dumps(value)
        if len(raw) > self.bytes_max:
            raise ValueError(f"has {len(raw)} bytes as JSON; at most {self.bytes_max} are allowed")
        if has_more_values(raw, self.values_max):
            raise ValueError(f"has more than {self.values_max} values, which is the limit")
        if raw.count(b"{") + raw.count(b"[") > self.depth_max and is_deeper(value, self.depth_max):
            raise ValueError(f"is nested deeper than {self.depth_max} levels, which is the limit")


METADATA = JsonLimit(64 * 1024, 5_000)
SETTINGS = JsonLimit(64 * 1024, 5_000)  # of models, of compaction, of MCP servers and sandboxes
SCHEMA = JsonLimit(256 * 1024, 10_000, 48)  # as large as the source code of a tool
LISTED = JsonLimit(256 * 1024, 10_000)  # all tool rules of an agent, or all properties of an identity
ARGUMENTS = JsonLimit(1024 * 1024, 20_000, 48)  # of one call: recorded with it, and removed with it

NAMES_MAX = 1000  # of values by name, such as environment variables


def within(limit: JsonLimit) -> Callable[[T], T]:
    """A validator that returns its value unchanged."""

    def checked(value: T) -> T:
        limit.check(value)
        return value

    return checked


def _few(value: T) -> T:
    if isinstance(value, dict) and len(value) > NAMES_MAX:
        raise ValueError(f"has {len(value)} names; at most {NAMES_MAX} are allowed")
    return value


Metadata = Annotated[dict[str, Any], AfterValidator(within(METADATA))]
FreeSettings = Annotated[dict[str, Any], AfterValidator(within(SETTINGS))]
JsonSchema = Annotated[dict[str, Any], AfterValidator(within(SCHEMA))]
Arguments = Annotated[dict[str, Any], AfterValidator(within(ARGUMENTS))]
NamedTexts = Annotated[dict[str, str], Field(max_length=NAMES_MAX), BeforeValidator(_few)]
