"""Types of fields that hold any JSON, within the limits of `core/json_limits.py`. A value beyond a limit is a 422 that
names the field and the limit.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from kelpie.core.json_limits import ARGUMENTS, METADATA, SCHEMA, SETTINGS, JsonLimit

T = TypeVar("T")


NAMES_MAX = 1000  # of values by name, such as environment variables


def within(limit: JsonLimit) -> Callable[[T], T]:
    """A validator that returns its value unchanged."""

    def checked(value: T) -> T:
        if not isinstance(value, bytes):  # a body that is no JSON, which its type refuses
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
