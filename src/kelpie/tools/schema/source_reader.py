"""Reading of source code that clients and models send, in a worker process with limits.

The texts of the errors are those of `source`, `python_schema` and `typescript_schema`, which the worker runs. Nothing
here parses source code itself.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from kelpie.core.errors import InvalidInput, ToolError
from kelpie.core.ids import OrganizationId
from kelpie.core.tools.languages import Language
from kelpie.tools.schema.source import FIELD, check_text
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram, Workers

PROGRAM = WorkerProgram("kelpie.tools.schema.source_program")
_MIB = 1024 * 1024


class SourceReader:
    """Reads the source code of one organization."""

    def __init__(self, workers: Workers, organization: OrganizationId) -> None:
        self._workers = workers
        self._organization = organization

    async def check(self, text: str) -> None:
        """Raises InvalidInput with the line of the error."""
        await self._read("check", text)

    async def checked_schema(self, text: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """The schema of a source that compiles too. Raises InvalidInput."""
        return await self._read("checked_schema", text, arguments)

    async def schema(self, text: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The schema of the Python function; `arguments` replace its own. Raises InvalidInput."""
        return await self._read("python_schema", text, arguments)

    async def function_names(self, text: str) -> list[str]:
        """The names of the Python functions at the top level. Raises InvalidInput."""
        return await self._read("function_names", text)

    async def typescript_schema(self, text: str) -> dict[str, Any]:
        """Raises InvalidInput."""
        return await self._read("typescript_schema", text)

    async def language(self, text: str) -> Language:
        """The language that the code is most likely written in. Raises ToolError."""
        try:
            return Language(await self._ask({"task": "language", "text": text}))
        except WorkerFailed:
            raise ToolError("The language of the code could not be detected; set 'language'.") from None

    async def _read(self, task: str, text: str, arguments: Mapping[str, Any] | None = None) -> Any:
        check_text(text)
        try:
            return await self._ask({"task": task, "text": text, "arguments": arguments})
        except WorkerFailed as failure:
            raise InvalidInput(FIELD, f"{_told(failure.fault)}; make it shorter or nest it less") from None

    async def _ask(self, request: Mapping[str, Any]) -> Any:
        asked = orjson.dumps(request)
        try:
            raw = await self._workers.ask(PROGRAM, asked, self._organization)
        except WorkerFailed as failure:
            if failure.fault is not WorkerFault.crash:
                raise
            # A process may die for reasons of its own. A source that ends two of them is refused.
            raw = await self._workers.ask(PROGRAM, asked, self._organization)
        answer = orjson.loads(raw)
        if "remedy" in answer:
            raise InvalidInput(answer["field"], answer["remedy"])
        return answer["result"]


def _told(fault: WorkerFault) -> str:
    if fault is WorkerFault.time:
        return f"takes more than {PROGRAM.cpu_s} s of processor time to check"
    if fault is WorkerFault.memory:
        return f"needs more than {PROGRAM.memory_bytes // _MIB} MiB of memory to check"
    return "ended the process that checks it"
