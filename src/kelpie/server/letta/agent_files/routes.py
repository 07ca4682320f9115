"""Export and import of agent files over HTTP. An upload is streamed to disk and read there by a worker process; an
export is compressed if the client accepts that.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kelpie.core.agents.agent_file import Imported, ImportOptions
from kelpie.core.errors import InvalidInput
from kelpie.core.ids import DEFAULT_CONVERSATION, AgentId, ConversationId
from kelpie.server.http.errors import Refused
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.multipart import MultipartForm, boundary_of
from kelpie.server.http.path_ids import AgentPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.letta.agent_files import file_pieces
from kelpie.server.letta.agent_files.document import agent_file
from kelpie.server.letta.agent_files.file_pieces import FIELD
from kelpie.server.letta.agent_files.file_writer import LettaFileWriter
from kelpie.server.letta.agent_files.import_form import import_options
from kelpie.server.letta.agents.shape import Facts
from kelpie.world.files.uploads import Upload
from kelpie.world.workers.port import WorkerFailed, WorkerProgram

router = resource("/agents", "agents")

READING_CPU_S = 60  # limits of the process that reads a file
READING_WALL_S = 300.0
READING_BYTES = 1024 * 1024 * 1024  # besides the file itself, a few times
SKILLS_MAX = 100
SKILL_FILES_MAX = 1_000
GZIP_BYTES_MIN = 1024
GZIP_PIECE = 256 * 1024

_JSON = "application/json"
_ENCODINGS = ("identity", "gzip", "x-gzip")
_FORM = {
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary", "description": "The agent file, or gzip of it."},
                    "override_existing_tools": {"type": "boolean", "default": True},
                    "strip_messages": {"type": "boolean", "default": False},
                    "append_copy_suffix": {"type": "boolean", "default": True, "deprecated": True},
                    "name": {"type": "string"},
                    "model": {"type": "string"},
                    "embedding": {"type": "string"},
                    "secrets": {"type": "string", "description": "A JSON object of texts."},
                    "project_id": {"type": "string", "deprecated": True},
                },
            }
        },
        _JSON: {"schema": {"type": "object"}},
    },
    "required": True,
}

ConversationQuery = Annotated[
    str | None, Query(description="A conversation whose messages are exported instead of the agent's own.")
]


class Skill(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    files: Annotated[dict[str, str], Field(max_length=SKILL_FILES_MAX)] | None = None
    source_url: str | None = None


class ExportAgent(BaseModel):
    """What an export contains besides the agent."""

    model_config = ConfigDict(extra="ignore")

    skills: Annotated[list[Skill], Field(max_length=SKILLS_MAX, fail_fast=True)] | None = None
    conversation_id: str | None = None
    scrub_messages: bool = False


@router.get("/{agent_id}/export", summary="Export an agent as a file", response_model=None)
async def export_agent(
    api: CallerApi,
    agent_id: AgentPath,
    request: Request,
    conversation_id: ConversationQuery = None,
    scrub_messages: Annotated[bool, Query(description="Leave the messages out.")] = False,
    use_legacy_format: Annotated[bool, Query(deprecated=True)] = False,
    max_steps: Annotated[int | None, Query(deprecated=True)] = None,
) -> Response:
    if use_legacy_format:
        raise Refused("invalid_request", "Legacy format is not supported")
    return await _exported(
        api, request, agent_id, ExportAgent(conversation_id=conversation_id, scrub_messages=scrub_messages)
    )


@router.post("/{agent_id}/export", summary="Export an agent with skills as a file", response_model=None)
async def export_agent_with_skills(
    api: CallerApi, agent_id: AgentPath, request: Request, body: ExportAgent | None = None
) -> Response:
    return await _exported(api, request, agent_id, body or ExportAgent())


async def _exported(api: CallerApi, request: Request, agent_id: AgentId, wanted: ExportAgent) -> Response:
    embeddings = {info.handle: info for info in await api.models.known_embeddings()}
    facts = Facts(cache(api.models.known), embeddings)
    named = wanted.conversation_id
    conversation = None if named in (None, DEFAULT_CONVERSATION) else ConversationId.parse(named)
    skills: list[dict[str, Any]] = [skill.model_dump() for skill in wanted.skills or ()]
    pieces = await api.agent_file_exports.write(
        agent_id, lambda: LettaFileWriter(facts, skills), conversation, scrub_messages=wanted.scrub_messages
    )
    size = sum(map(len, pieces))
    if size >= GZIP_BYTES_MIN and _accepts_gzip(request):
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        return StreamingResponse(_compressed(pieces), media_type=_JSON, headers=headers)
    headers = {"content-length": str(size), "vary": "accept-encoding"}
    return StreamingResponse(_uncompressed(pieces), media_type=_JSON, headers=headers)


def _accepts_gzip(request: Request) -> bool:
    for offer in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = offer.partition(";")
        if name.strip() in ("gzip", "*") and quality.replace(" ", "") not in ("q=0", "q=0.0"):
            return True
    return False


async def _uncompressed(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _compressed(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    """The pieces as gzip; other requests get a turn in between."""
    packing = zlib.compressobj(level=1, wbits=31)
    for piece in pieces:
        for start in range(0, len(piece), GZIP_PIECE):
            if packed := packing.compress(piece[start : start + GZIP_PIECE]):
                yield packed
            await asyncio.sleep(0)
    yield packing.flush()


@router.post("/import", summary="Import agents from a file", response_model=None, openapi_extra={"requestBody": _FORM})
async def import_agents(api: CallerApi, request: Request) -> JsonAnswer:
    kind, encoding = request.headers.get("content-type", ""), request.headers.get("content-encoding", "identity")
    if kind.lower().startswith("multipart/form-data"):
        if encoding != "identity":
            raise InvalidInput("Content-Encoding", "compress the file inside the form, not the form")
        form = MultipartForm(request.stream(), boundary_of(kind))
        async with api.world.uploads.receive(form.file()) as upload:
            if not form.has_file:
                raise InvalidInput(FIELD, "is missing in the form; send the agent file as the field 'file'")
            imported = await _imported(api, upload, import_options(form.fields, request.headers))
    else:
        if encoding not in _ENCODINGS:
            raise InvalidInput(
                "Content-Encoding", f"must be one of {', '.join(_ENCODINGS)}; compress the file with gzip"
            )
        options = import_options(request.query_params, request.headers)
        async with api.world.uploads.receive(request.stream()) as upload:
            imported = await _imported(api, upload, options)
    notes = {"kelpie_notes": list(imported.notes)} if imported.notes else {}
    return JsonAnswer({"agent_ids": list(imported.agent_ids), **notes})


async def _imported(api: CallerApi, upload: Upload, options: ImportOptions) -> Imported:
    bytes_max = api.settings.upload_bytes_max
    program = WorkerProgram(
        file_pieces.__name__,
        cpu_s=READING_CPU_S,
        wall_s=READING_WALL_S,
        memory_bytes=READING_BYTES + 6 * bytes_max,
        answer_bytes_max=2 * bytes_max + READING_BYTES,
    )
    try:
        answered = await api.world.workers.ask(program, upload, api.caller.organization_id)
    except WorkerFailed as failure:
        raise InvalidInput(FIELD, f"cannot be read: {failure}; it may be too large or nested too deeply") from None
    return await api.agent_file_imports.load(agent_file(answered), options)
