"""Folders and files over HTTP: created, uploaded, processed, attached, opened, searched and deleted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.core.errors import StorageError
from kelpie.core.ids import DEFAULT_ORGANIZATION
from kelpie.files import parsing, processing
from kelpie.files.processing import FileProcessing
from tests.server.file_rig import DEADLINE_S, make_folder, open_file_rig, processed, stored, upload
from tests.server.rig import Puppet, called, make_agent, said

FILE_TOOLS = {"open_files", "grep_files", "semantic_search_files"}
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n"
    b"4 0 obj<</Length 44>>stream\nBT /F1 12 Tf 20 100 Td (Hello PDF text) Tj ET\nendstream endobj\n"
    b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n"
)

Rig = tuple[Kelpie, Puppet, httpx.AsyncClient]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_file_rig(tmp_path) as opened:
        yield opened


async def test_a_folder_is_made_read_changed_and_deleted(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client, description="d", instructions="read", metadata={"k": 1})
    path = f"/v1/folders/{folder['id']}"
    assert folder["embedding_config"]["handle"] == "fake/embed" and folder["metadata"] == {"k": 1}
    assert (await client.get(path)).json() == folder
    changed = (await client.patch(path, json={"description": "d2"})).json()
    assert (changed["description"], changed["instructions"]) == ("d2", "read")
    assert (await client.get("/v1/folders/", params={"name": "docs"})).json() == [changed]
    assert (await client.get("/v1/folders/count")).json() == 1
    assert (await client.get("/v1/folders/name/docs")).json() == folder["id"]
    assert (await client.get(f"/v1/sources/{folder['id']}")).json() == changed | {"vector_db_provider": "native"}
    assert (await client.delete(path)).json() is None
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(path)).status_code == 404
    assert (await client.get("/v1/folders/")).json() == []


async def test_a_name_is_used_once(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    other = await make_folder(client, "other")
    assert (await client.post("/v1/folders/", json={"name": "docs"})).status_code == 409
    assert (await client.patch(f"/v1/folders/{other['id']}", json={"name": "docs"})).status_code == 409
    await client.delete(f"/v1/folders/{folder['id']}")
    assert (await client.post("/v1/folders/", json={"name": "docs"})).status_code == 200


async def test_an_unknown_embedding_model_is_refused(files: Rig) -> None:
    _, _, client = files
    refused = await client.post("/v1/folders/", json={"name": "x", "embedding": "fake/nope"})
    assert refused.status_code == 400 and "Embedding model fake/nope not found" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "content", "text", "media_type"),
    [
        ("a.txt", b"alpha line one\nbeta line two\n", "alpha line one\nbeta line two\n", "text/plain"),
        ("b.md", b"# Title\n\nSome words.\n", "# Title\n\nSome words.\n", "text/x-markdown"),
        ("c.pdf", PDF, "Hello PDF text\n\n", "application/pdf"),
        ("d.json", b'{"a":1}', '{"a":1}', "application/json"),
        ("e.py", b"print(1)\n", "print(1)\n", "text/x-python"),
        ("f.csv", b"a,b\r\n1,2\r\n", "a,b\n1,2\n", "text/csv"),
        ("g.txt", "Größe".encode("utf-16"), "Größe", "text/plain"),
        ("empty.txt", b"", "", "text/plain"),
    ],
)
async def test_a_file_is_read(files: Rig, name: str, content: bytes, text: str, media_type: str) -> None:
    _, _, client = files
    folder = await make_folder(client)
    sent = (await upload(client, folder, name, content)).json()
    assert (sent["file_name"], sent["original_file_name"], sent["file_size"]) == (f"docs/{name}", name, len(content))
    assert (sent["processing_status"], sent["file_type"]) == ("parsing", media_type)
    done = await processed(client, sent)
    count = 1 if text.strip() else 0
    assert (done["file_name"], done["processing_status"]) == (name, "completed"), done
    assert (done["total_chunks"], done["chunks_embedded"], done["content"]) == (count, count, None)
    path = f"/v1/folders/{folder['id']}/files"
    assert (await client.get(f"{path}/{sent['id']}", params={"include_content": "true"})).json()["content"] == text
    assert (await client.get(path, params={"include_content": "true"})).json()[0]["content"] == text
    passages = (await client.get(f"/v1/folders/{folder['id']}/passages")).json()
    assert [each["text"] for each in passages] == ([text.strip()] if count else [])
    assert all(len(each["embedding"]) == 8 and each["file_id"] == sent["id"] for each in passages)


async def test_html_and_docx_are_read_as_text(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    page = "<html><head><title>T</title></head><body><p>Penguins live in the south.</p></body></html>"
    html = await stored(client, folder, "page.html", page)
    docx = await stored(client, folder, "letter.docx", docx_of(["Dear reader,", "the tea is ready."]))
    for file, text in ((html, "Penguins live in the south."), (docx, "Dear reader,\nthe tea is ready.\n")):
        path = f"/v1/folders/{folder['id']}/files/{file['id']}"
        assert text in (await client.get(path, params={"include_content": "true"})).json()["content"]


def docx_of(paragraphs: list[str]) -> bytes:
    import io

    import docx

    document, target = docx.Document(), io.BytesIO()
    for each in paragraphs:
        document.add_paragraph(each)
    document.save(target)
    return target.getvalue()


async def test_duplicates_are_handled_as_asked(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    first = await stored(client, folder, "a.txt", "one")
    second = await stored(client, folder, "a.txt", "two")
    assert (second["file_name"], second["original_file_name"]) == ("a_(1).txt", "a.txt")
    skipped = await upload(client, folder, "a.txt", "three", duplicate_handling="skip")
    assert skipped.headers["x-upload-result"] == "skipped" and skipped.json()["id"] == second["id"]
    refused = await upload(client, folder, "a.txt", "three", duplicate_handling="error")
    assert refused.status_code == 400
    assert "File 'a.txt' already exists in folder 'docs'" in refused.json()["detail"]
    replaced = await stored(client, folder, "a.txt", "four", duplicate_handling="replace")
    assert replaced["file_name"] == "a.txt" and replaced["id"] != first["id"]
    named = await stored(client, folder, "q.txt", "five", name="renamed.txt")
    assert named["file_name"] == "renamed.txt"
    listed = (await client.get(f"/v1/folders/{folder['id']}/files", params={"order": "asc"})).json()
    assert [each["file_name"] for each in listed] == ["a_(1).txt", "a.txt", "renamed.txt"]
    gone = await client.get(f"/v1/folders/{folder['id']}/files/{first['id']}")
    assert gone.status_code == 404


async def tools_of(client: httpx.AsyncClient, agent: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in (await client.get(f"/v1/agents/{agent['id']}/tools?limit=100")).json()}


async def test_a_folder_brings_tools_and_files_into_the_prompt(files: Rig) -> None:
    _, puppet, client = files
    agent = await make_agent(client)
    folder = await make_folder(client, description="d2", instructions="i2")
    other = await make_folder(client, "other")
    attach = f"/v1/agents/{agent['id']}/folders/attach"
    assert (await client.patch(f"{attach}/{folder['id']}")).status_code == 200
    await client.patch(f"{attach}/{other['id']}")
    assert await tools_of(client, agent) >= FILE_TOOLS
    await stored(client, folder, "a.txt", "alpha\n\nbeta\n")
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    shown = puppet.asked[-1].system
    limit = agent["per_file_view_window_char_limit"]
    assert (
        "<directories>\n<file_limits>\n- current_files_open=1\n"
        f"- max_files_open={agent['max_files_open']}\n</file_limits>\n"
        '<directory name="docs">\n<description>d2</description>\n<instructions>i2</instructions>\n'
        '<file status="open" name="docs/a.txt">\n<metadata>\n- read_only=true\n- chars_current=54\n'
        f"- chars_limit={limit}\n</metadata>\n<value>\n[Viewing file start (out of 2 lines)]\n1: alpha\n2: beta\n"
        '</value>\n</file>\n</directory>\n<directory name="other">\n</directory>\n</directories>\n\n<memory_metadata>'
    ) in shown
    assert (await client.get(f"/v1/folders/{folder['id']}/agents")).json() == [agent["id"]]
    sources = (await client.get(f"/v1/agents/{agent['id']}", params={"include": "agent.sources"})).json()["sources"]
    assert [each["name"] for each in sources] == ["docs", "other"]
    detach = f"/v1/agents/{agent['id']}/folders/detach"
    await client.patch(f"{detach}/{other['id']}")
    assert await tools_of(client, agent) >= FILE_TOOLS
    await client.patch(f"{detach}/{folder['id']}")
    assert not FILE_TOOLS & await tools_of(client, agent)
    await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "hi"})
    assert "<directories>" not in puppet.asked[-1].system


async def returned(client: httpx.AsyncClient, puppet: Puppet, agent: dict[str, Any], tool: str, arguments: str) -> Any:
    puppet.script += [called(tool, arguments), said("done")]
    sent = await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "go"})
    assert sent.status_code == 200, sent.text
    return next(each for each in sent.json()["messages"] if each["message_type"] == "tool_return_message")


async def test_the_tools_look_into_files(files: Rig) -> None:
    _, puppet, client = files
    folder = await make_folder(client)
    await stored(client, folder, "a.txt", "alpha line one\nbeta line two\ngamma line three\n")
    await stored(client, folder, "b.md", "# Title\n\nSome markdown about penguins.\n")
    agent = await make_agent(client, folder_ids=[folder["id"]])
    assert {tool["name"] for tool in agent["tools"]} >= FILE_TOOLS
    blocks = {each["label"]: (each["value"], each["is_open"]) for each in agent["memory"]["file_blocks"]}
    assert blocks["docs/b.md"][1] and blocks["docs/b.md"][0].endswith("1: # Title\n2: Some markdown about penguins.")
    await client.patch(f"/v1/agents/{agent['id']}/files/close-all")

    found = await returned(client, puppet, agent, "grep_files", '{"pattern": "beta"}')
    assert found["tool_return"] == (
        "Found 1 total matches across 1 files (showing matches 1-1 of 1)\n" + "=" * 80 + "\n\nFiles with matches:\n"
        "  - docs/a.txt: 1 matches\n\n\n=== docs/a.txt:2 ===\n  1: alpha line one\n> 2: beta line two\n"
        "  3: gamma line three\n\nNo more matches to show."
    )
    found = await returned(client, puppet, agent, "semantic_search_files", '{"query": "penguins", "limit": 1}')
    head = "Found 1 semantic matches in 1 files for query: 'penguins'"
    body = "=== docs/b.md (passage #1) ===\n  # Title\n  \n  Some markdown about penguins."
    assert found["tool_return"] == f"{head}\n{'=' * len(head)}\n\n{body}"

    request = '{"file_requests": [{"file_name": "docs/a.txt", "offset": 1, "length": 1}]}'
    found = await returned(client, puppet, agent, "open_files", request)
    assert found["tool_return"] == "* Opened docs/a.txt (lines 2-2)"
    assert "[Viewing lines 2 to 2 (out of 3 lines)]\n2: beta line two\n</value>" in puppet.asked[-1].system
    found = await returned(client, puppet, agent, "open_files", '{"file_requests": [{"file_name": "docs/x"}]}')
    assert found["status"] == "error" and "docs/a.txt, docs/b.md" in found["tool_return"]


async def test_the_file_that_was_not_used_for_longest_is_closed(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    agent = await make_agent(client, folder_ids=[folder["id"]], max_files_open=2)
    made = [await stored(client, folder, f"{name}.txt", name) for name in ("a", "b", "c")]
    path = f"/v1/agents/{agent['id']}/files"

    async def opened() -> set[str]:
        found = (await client.get(path, params={"is_open": "true"})).json()
        assert found["has_more"] is False
        return {each["file_name"] for each in found["files"]}

    assert await opened() == {"docs/b.txt", "docs/c.txt"}
    assert (await client.patch(f"{path}/{made[0]['id']}/open")).json() == ["docs/b.txt"]
    assert await opened() == {"docs/a.txt", "docs/c.txt"}
    for number, closes in ((1, "c"), (2, "a"), (0, "b")):  # each was opened before, and was used just now
        assert (await client.patch(f"{path}/{made[number]['id']}/open")).json() == [f"docs/{closes}.txt"]
    assert await opened() == {"docs/a.txt", "docs/c.txt"}
    closed = (await client.patch(f"{path}/{made[0]['id']}/close")).json()
    assert closed == {"message": f"File id={made[0]['id']} successfully closed"}
    assert await opened() == {"docs/c.txt"}
    assert (await client.patch(f"{path}/close-all")).json() == ["docs/c.txt"]
    page = (await client.get(path, params={"limit": "2"})).json()
    rest = (await client.get(path, params={"after": page["next_cursor"]})).json()
    assert page["has_more"] and not rest["has_more"]
    assert {each["file_name"] for each in [*page["files"], *rest["files"]]} == {f"docs/{n}.txt" for n in "abc"}
    names = [each["file_name"] for each in [*page["files"], *rest["files"]]]
    before = {"limit": "1", "before": rest["next_cursor"]}
    middle = (await client.get(path, params=before)).json()
    assert middle["has_more"] and [each["file_name"] for each in middle["files"]] == names[1:2]
    unknown = await client.patch(f"{path}/file-00000000-0000-4000-8000-000000000001/open")
    assert unknown.status_code == 404


async def test_a_deleted_file_is_gone_from_agents_and_searches(files: Rig) -> None:
    _, puppet, client = files
    folder = await make_folder(client)
    kept = await stored(client, folder, "kept.txt", "penguins swim")
    gone = await stored(client, folder, "gone.txt", "penguins walk")
    agent = await make_agent(client, folder_ids=[folder["id"]])
    deleted = await client.delete(f"/v1/folders/{folder['id']}/{gone['id']}")
    assert deleted.status_code == 204
    assert (await client.delete(f"/v1/folders/{folder['id']}/{gone['id']}")).status_code == 404
    found = await returned(client, puppet, agent, "semantic_search_files", '{"query": "penguins"}')
    assert "docs/kept.txt" in found["tool_return"] and "gone.txt" not in found["tool_return"]
    assert "gone.txt" not in puppet.asked[-1].system and "kept.txt" in puppet.asked[-1].system
    assert [each["id"] for each in (await client.get(f"/v1/folders/{folder['id']}/files")).json()] == [kept["id"]]


async def unread(_: FileProcessing) -> float:
    return 3600.0


async def test_an_upload_is_kept_for_as_long_as_its_file_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused, replaced or deleted before it was read leaves nothing on the disk."""
    monkeypatch.setattr(FileProcessing, "_read_next", unread)
    async with open_file_rig(tmp_path) as (kelpie, _, client):
        folder, other = await make_folder(client), await make_folder(client, "other")
        ids = [(await upload(client, folder, name, "text")).json()["id"] for name in ("a.txt", "b.txt")]
        kept = kelpie.world.uploads.names
        assert await kept() == sorted(ids)
        replaced = await upload(client, folder, "a.txt", "anew", duplicate_handling="replace")
        assert await kept() == sorted([replaced.json()["id"], ids[1]]), "the one that was replaced is not read any more"
        await client.put(f"/v1/kelpie/quotas/{DEFAULT_ORGANIZATION}", json={"files": 2})
        refused = await upload(client, folder, "c.txt", "too many")
        assert refused.status_code >= 400
        assert await kept() == sorted([replaced.json()["id"], ids[1]]), "a refused upload has no file"
        skipped = await upload(client, folder, "b.txt", "again", duplicate_handling="skip")
        assert skipped.json()["id"] == ids[1] and len(await kept()) == 2
        await client.put(f"/v1/kelpie/quotas/{DEFAULT_ORGANIZATION}", json={"files": 9})
        last = (await upload(client, other, "d.txt", "text")).json()["id"]
        assert (await client.delete(f"/v1/folders/{folder['id']}/{ids[1]}")).status_code == 204
        assert await kept() == sorted([replaced.json()["id"], last])
        await client.delete(f"/v1/folders/{folder['id']}")
        assert await kept() == [last], "with a folder go the uploads of its files, and no others"


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if await look() == wanted:
                return
            await asyncio.sleep(0.01)


async def test_a_file_whose_reading_is_cut_off_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def cut_off(_workers: Any, _settings: Any, file: Any, *_: Any) -> None:
        tries.append(file.id)
        raise StorageError("The worker process is gone.")

    monkeypatch.setattr(parsing, "parse", cut_off)
    monkeypatch.setattr(processing, "RETRY_S", 0.01)
    async with open_file_rig(tmp_path) as (kelpie, _, client):
        sent = (await upload(client, await make_folder(client), "a.txt", "text")).json()
        failed = await processed(client, sent)
        assert failed["processing_status"] == "error"
        assert f"interrupted {processing.ATTEMPTS_MAX} times" in failed["error_message"]
        assert tries == [sent["id"]] * processing.ATTEMPTS_MAX
        await until(kelpie.world.uploads.names, [])


async def test_a_new_file_is_opened_for_every_agent_however_many_there_are(files: Rig) -> None:
    """Some of them in each transaction, which here is one."""
    kelpie, _, client = files
    kelpie.runtime.piece_size.rows = 1
    folder = await make_folder(client)
    agents = [await make_agent(client, name=name, folder_ids=[folder["id"]]) for name in "abc"]
    await stored(client, folder, "a.txt", "alpha")

    async def opened() -> list[int]:
        pages = [await client.get(f"/v1/agents/{agent['id']}/files?is_open=true") for agent in agents]
        return [len(page.json()["files"]) for page in pages]

    await until(opened, [1, 1, 1])


def test_organizations_take_turns_and_one_that_comes_is_not_behind_those_that_were_served() -> None:
    turns = processing._Turns()  # pyright: ignore[reportPrivateUsage]
    assert [turns.next({"busy": 1, "other": 2}) for _ in range(4)] == ["busy", "other", "busy", "other"]
    assert turns.next({"busy": 1, "other": 2, "new": 3}) == "new"
    assert turns.next({"new": 3}) == "new"
    assert turns.next({"new": 3, "busy": 4, "other": 5}) == "busy", "who did not wait meanwhile is new again"
