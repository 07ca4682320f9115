"""Reading of a downloaded page in a worker process with limits on time and memory."""

import json
from dataclasses import dataclass

import orjson

from kelpie.core.errors import Overloaded, ToolError
from kelpie.tools.web.page_kind import PageKind
from kelpie.tools.web.raw_exchange import RawAnswer
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram, Workers

MEGABYTE = 1024 * 1024
PROGRAM = WorkerProgram("kelpie.tools.web.page_program", cpu_s=10, wall_s=60.0, memory_bytes=1024 * MEGABYTE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as the model reads it."""

    url: str
    title: str
    text: str
    note: str

    @property
    def shown(self) -> str:
        head = [f"Title: {self.title}"] if self.title else []
        head.append(f"URL: {self.url}")
        if self.note:
            head.append(f"Note: {self.note}")
        return "\n".join(head) + f"\n\n{self.text}"


async def read_page(workers: Workers, owner: str, url: str, answer: RawAnswer, kind: PageKind, bytes_max: int) -> Page:
    """The readable text of an answer. Raises ToolError."""
    facts = {
        "url": url,
        "kind": kind.value,
        "encoding": answer.encoding,
        "content_type": answer.headers.get("content-type", ""),
        "bytes_max": bytes_max,
    }
    head = orjson.dumps(facts)
    request = len(head).to_bytes(4, "big") + head + answer.body
    try:
        found = json.loads(await workers.ask(PROGRAM, request, owner))
    except WorkerFailed as failure:
        raise ToolError(f"The page at {url} could not be read: {_told(failure.fault)}.") from None
    except Overloaded as error:
        raise ToolError(f"The page at {url} was not read: {error}") from None
    if "unreadable" in found:
        raise ToolError(f"The page at {url} could not be read: {found['unreadable']}.")
    return Page(url, found["title"], found["text"], found["note"])


def _told(fault: WorkerFault) -> str:
    if fault is WorkerFault.time:
        return f"it takes more than {PROGRAM.cpu_s} s of processor time"
    if fault is WorkerFault.memory:
        return f"it needs more than {PROGRAM.memory_bytes // MEGABYTE} MB of memory"
    return "it ended the process that reads pages"
