"""The registry of codes: errors and log events share it, so that a code means the same wherever it is seen.

docs/errors.md and docs/operations.md are written from it. A test compares it with the source: every code that is used
is here, and every code that is here is used.
"""

from collections.abc import Mapping
from types import MappingProxyType

from kelpie.core.codes import agents, limits, mcp, memory, models, operation, requests, storage, tools, triggers
from kelpie.core.codes.code import Code

AREAS: Mapping[str, tuple[Code, ...]] = MappingProxyType(
    {
        "Requests": requests.CODES,
        "Limits": limits.CODES,
        "Agents": agents.CODES,
        "Models": models.CODES,
        "Schedules and batches": triggers.CODES,
        "MCP servers": mcp.CODES,
        "Tools": tools.CODES,
        "Memory": memory.CODES,
        "Storage": storage.CODES,
        "Operation": operation.CODES,
    }
)

CODES: Mapping[str, Code] = MappingProxyType({code.name: code for codes in AREAS.values() for code in codes})
