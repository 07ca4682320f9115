"""The history of memory blocks: authors, times and changes of versions, differences between them, and rollback."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from kelpie.core.memory.block_history import VERSIONS_SHOWN_MAX, BlockVersion
from kelpie.memory.block_history import Difference
from kelpie.memory.diff import unified
from kelpie.server.http.json_answer import JsonAnswer, listed
from kelpie.server.http.path_ids import BlockPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp
from kelpie.server.letta.blocks.shape import block_shape

router = resource("/blocks", "block history (Kelpie)")

_MAX = 2**53
VersionPath = Annotated[int, Path(ge=1, le=_MAX, description="The version number.")]


class Rollback(BaseModel):
    """The version to restore."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=_MAX, description="The version to restore.")
    expected_version: int | None = Field(
        None,
        ge=1,
        le=_MAX,
        description="The expected current version. If it is another one, nothing changes and the status is 409.",
    )


@router.get("/{block_id}/history", summary="List the versions of a block, newest first (Kelpie)", response_model=None)
async def list_versions(
    api: CallerApi,
    block_id: BlockPath,
    before: Annotated[int | None, Query(ge=1, le=_MAX, description="Return only versions before this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=VERSIONS_SHOWN_MAX, description="Maximum number to return.")] = 50,
) -> JsonAnswer:
    return await listed(await api.block_history.page(block_id, before, limit), version_shape)


@router.get("/{block_id}/history/{version}", summary="Get a version of a block (Kelpie)", response_model=None)
async def retrieve_version(api: CallerApi, block_id: BlockPath, version: VersionPath) -> JsonAnswer:
    found = await api.block_history.get(block_id, version)
    return JsonAnswer({**version_shape(found), "value": found.value})


@router.get("/{block_id}/diff", summary="Compare two versions of a block (Kelpie)", response_model=None)
async def diff(
    api: CallerApi,
    block_id: BlockPath,
    from_: Annotated[
        int | None, Query(alias="from", ge=1, le=_MAX, description="Defaults to the version before `to`.")
    ] = None,
    to: Annotated[int | None, Query(ge=1, le=_MAX, description="Defaults to the latest version.")] = None,
) -> JsonAnswer:
    return JsonAnswer(diff_shape(await api.block_history.diff(block_id, from_, to)))


@router.post("/{block_id}/rollback", summary="Restore an earlier version of a block (Kelpie)", response_model=None)
async def rollback(api: CallerApi, block_id: BlockPath, body: Rollback) -> JsonAnswer:
    block = await api.block_history.rollback(block_id, body.version, body.expected_version)
    return JsonAnswer({**block_shape(block), "version": block.version})


def version_shape(version: BlockVersion) -> dict[str, Any]:
    by = version.by
    return {
        "block_id": version.block_id,
        "version": version.version,
        "created_at": None if version.lost else timestamp(version.at),
        "author": {"type": by.kind.value, "id": by.id, "key_id": by.key_id},
        "run_id": by.run_id,
        "step_id": by.step_id,
        "tool": by.tool,
        "restores": version.restores,
        "fields": dict(version.fields),
        "chars": version.chars,
        **({"damaged": True} if version.lost else {}),
    }


def diff_shape(found: Difference) -> dict[str, Any]:
    before, after = found.before, found.after
    names = (f"{version.block_id} version {version.version}" for version in (before, after))
    return {
        "block_id": after.block_id,
        "from": before.version,
        "to": after.version,
        "unified": unified(found.hunks, *names),
        "hunks": [
            {
                "from_line": hunk.from_line,
                "from_count": hunk.from_count,
                "to_line": hunk.to_line,
                "to_count": hunk.to_count,
                "lines": [{"kind": line.kind, "text": line.text} for line in hunk.lines],
            }
            for hunk in found.hunks
        ],
    }
