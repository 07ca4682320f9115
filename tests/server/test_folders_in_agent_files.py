"""Folders and files in agent files: an import makes them, and an export has them again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.accounts.quotas.organization_database import OrganizationDatabase
from kelpie.app import Kelpie
from kelpie.core.errors import CommitUnknown
from kelpie.files import processing
from kelpie.world.files.uploads import DirectoryUploads
from tests.server.agent_file_rig import agent, agent_file
from tests.server.file_rig import make_folder, open_file_rig, processed, stored, upload
from tests.server.rig import Puppet, make_agent
from tests.server.test_agent_files import exported, imported, sent

TEXT = "Rule one: be kind.\nRule two: be brief.\n"
SEEN = {"id": "file_agent-1", "agent_id": "agent-0", "source_id": "source-0"}

Rig = tuple[Kelpie, Puppet, httpx.AsyncClient]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_file_rig(tmp_path) as opened:
        yield opened


def handbook(**rules: Any) -> dict[str, Any]:
    document = {"id": "file-1", "source_id": "source-0", "file_name": "handbook/rules.txt", "content": TEXT}
    opened = {**SEEN, "file_id": "file-1", "is_open": True, "start_line": 2, "end_line": 2}
    closed = {**SEEN, "file_id": "file-0", "is_open": False}
    intro = {"id": "file-0", "source_id": "source-0", "file_name": "handbook/intro.md", "content": "# Intro"}
    return agent_file(
        agent(source_ids=["source-0"], files_agents=[closed, opened]),
        sources=[{"id": "source-0", "name": "handbook", "description": "docs", "instructions": "Read it."}],
        files=[intro, document | {"original_file_name": "rules.txt", "file_type": "text/plain", **rules}],
    )


async def all_processed(client: httpx.AsyncClient, agent_id: str) -> dict[str, Any]:
    """The folder of an agent, when its files are processed."""
    (folder,) = (await client.get(f"/v1/agents/{agent_id}/folders")).json()
    for file in (await client.get(f"/v1/folders/{folder['id']}/files")).json():
        done = await processed(client, file)
        assert done["processing_status"] == "completed", done["error_message"]
    return folder


async def test_an_import_makes_folders_and_files(files: Rig) -> None:
    _, _, client = files
    (agent_id,) = await imported(client, handbook())
    folder = await all_processed(client, agent_id)
    assert (folder["name"], folder["description"], folder["instructions"]) == ("handbook", "docs", "Read it.")
    listed = (await client.get(f"/v1/agents/{agent_id}/files")).json()["files"]
    assert {each["file_name"]: each["is_open"] for each in listed} == {
        "handbook/intro.md": False,
        "handbook/rules.txt": True,
    }
    shown = (await client.get(f"/v1/agents/{agent_id}/context")).json()["directories"]
    assert "[Viewing lines 2 to 2 (out of 2 lines)]\n2: Rule two: be brief.\n</value>" in shown
    tools = {tool["name"] for tool in (await client.get(f"/v1/agents/{agent_id}/tools?limit=100")).json()}
    assert {"open_files", "grep_files", "semantic_search_files"} <= tools


async def test_what_was_imported_is_exported_again(files: Rig) -> None:
    _, _, client = files
    (agent_id,) = await imported(client, handbook())
    await all_processed(client, agent_id)
    one = await exported(client, agent_id)
    assert one["agents"][0]["source_ids"] == ["source-0"]
    assert [(each["name"], each["instructions"]) for each in one["sources"]] == [("handbook", "Read it.")]
    texts = {each["file_name"]: each["content"] for each in one["files"]}
    assert texts == {"handbook/intro.md": "# Intro", "handbook/rules.txt": TEXT}
    seen = {each["file_name"]: (each["is_open"], each["start_line"]) for each in one["agents"][0]["files_agents"]}
    assert seen == {"handbook/intro.md": (False, None), "handbook/rules.txt": (True, 2)}


async def test_the_same_folder_is_used_again_and_another_one_is_not(files: Rig) -> None:
    _, _, client = files
    (first,) = await imported(client, handbook())
    folder = await all_processed(client, first)
    (second,) = await imported(client, handbook())
    assert [each["id"] for each in (await client.get(f"/v1/agents/{second}/folders")).json()] == [folder["id"]]
    answer = await sent(client, handbook(content="Other rules.\n"))
    (other,) = (await client.get(f"/v1/agents/{answer.json()['agent_ids'][0]}/folders")).json()
    assert other["name"] == "handbook_(1)" and any("handbook_(1)" in note for note in answer.json()["kelpie_notes"])
    assert (await client.get("/v1/folders/count")).json() == 2


async def test_an_uploaded_file_travels_with_its_agent(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    made = await make_agent(client, folder_ids=[folder["id"]])
    await stored(client, folder, "a.txt", TEXT)
    document = await exported(client, made["id"])
    await client.delete(f"/v1/folders/{folder['id']}")
    (copy,) = await imported(client, document)
    again = await all_processed(client, copy)
    assert again["name"] == "docs" and again["id"] != folder["id"]
    (file,) = (await client.get(f"/v1/folders/{again['id']}/files", params={"include_content": "true"})).json()
    assert (file["content"], file["file_type"], file["file_size"]) == (TEXT, "text/plain", len(TEXT))


@pytest.mark.parametrize(
    "wrong",
    [{"file_name": "../../etc/passwd"}, {"file_name": 7}, {"source_id": "source-9"}, {"original_file_name": "a\nb"}],
)
async def test_a_wrong_file_is_refused_and_nothing_is_made(files: Rig, wrong: dict[str, Any]) -> None:
    _, _, client = files
    answer = await sent(client, handbook(**wrong))
    assert answer.status_code == 400 and "files[1]" in answer.json()["detail"], answer.text
    assert (await client.get("/v1/folders/count")).json() == 0


async def test_files_of_an_import_are_read_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        return None

    original = DirectoryUploads.__init__
    monkeypatch.setattr(DirectoryUploads, "__init__", lambda self, _=None: original(self, tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(processing.FileProcessing, "_next", nothing)
        async with open_file_rig(tmp_path) as (_, _, client):
            (agent_id,) = await imported(client, handbook())
            (folder,) = (await client.get(f"/v1/agents/{agent_id}/folders")).json()
            listed = (await client.get(f"/v1/folders/{folder['id']}/files")).json()
            assert {file["processing_status"] for file in listed} == {"pending"}
    async with open_file_rig(tmp_path) as (_, _, client):
        await _has_the_handbook(client, agent_id)


async def _has_the_handbook(client: httpx.AsyncClient, agent_id: str) -> None:
    folder = await all_processed(client, agent_id)
    listed = (await client.get(f"/v1/folders/{folder['id']}/files", params={"include_content": "true"})).json()
    assert {file["file_name"]: file["content"] for file in listed} == {"intro.md": "# Intro", "rules.txt": TEXT}


@pytest.fixture
def looks_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processing of files looks for new ones when it is told of them, and not by itself."""
    monkeypatch.setattr(processing, "LOOK_EVERY_S", 3600.0)


@pytest.mark.usefixtures("looks_rarely")
async def test_an_import_whose_outcome_is_unknown_has_all_of_its_files_or_nothing(
    files: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, client = files
    original = OrganizationDatabase.transact

    async def transact(self: OrganizationDatabase, fn: Any) -> Any:
        found = await original(self, fn)
        if "publish" in getattr(getattr(fn, "func", None), "__name__", ""):
            raise CommitUnknown("The answer was lost.")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(OrganizationDatabase, "transact", transact)
        answer = await sent(client, handbook())
        assert answer.status_code == 503 and answer.json()["code"] == "commit_unknown", answer.text
    (agent_id,) = [each["id"] for each in (await client.get("/v1/agents/")).json()]
    await _has_the_handbook(client, agent_id)


@pytest.mark.usefixtures("looks_rarely")
async def test_an_upload_whose_outcome_is_unknown_is_processed(files: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = files
    folder, original = await make_folder(client), OrganizationDatabase.transact

    async def transact(self: OrganizationDatabase, fn: Any) -> Any:
        found = await original(self, fn)
        if "Folders.upload" in fn.__qualname__:
            raise CommitUnknown("The answer was lost.")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(OrganizationDatabase, "transact", transact)
        answer = await upload(client, folder, "a.txt", "text")
        assert answer.status_code == 503 and answer.json()["code"] == "commit_unknown", answer.text
    (file,) = (await client.get(f"/v1/folders/{folder['id']}/files")).json()
    assert (await processed(client, file))["processing_status"] == "completed"
