"""Limits of fields that hold any JSON: bytes, values and depth, wherever they are stored.

Whatever is stored is read again for every list that shows it, so a small request must not be able to make later answers
large.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from kelpie.core.json_size import has_more_values, is_deeper


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
