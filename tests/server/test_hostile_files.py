"""Hostile files: each is refused or fails with a clear reason, within bounds, and the next upload works."""

import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kelpie.app import Kelpie
from kelpie.files import grep
from tests.server.file_rig import make_folder, open_file_rig, processed, stored, upload
from tests.server.rig import Puppet, called, make_agent, said

LIMIT = 64 * 1024
RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="word/document.xml"/></Relationships>'
)
TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
BODY = f"<w:document {WORD}><w:body><w:p><w:r><w:t>{{text}}</w:t></w:r></w:p></w:body></w:document>"

Rig = tuple[Kelpie, Puppet, httpx.AsyncClient]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Rig]:
    settings = {"upload_bytes_max": LIMIT, "file_text_mb_max": 1, "file_parse_s": 10.0}
    async with open_file_rig(tmp_path, **settings) as opened:
        yield opened


def docx(document: str, **others: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("_rels/.rels", RELATIONS)
        archive.writestr("word/document.xml", document)
        for name, content in others.items():
            archive.writestr(name, content)
    return target.getvalue()


def bomb() -> bytes:
    return docx(BODY.format(text="x"), **{"word/media.bin": b"\0" * (300 * 1024 * 1024)})[: LIMIT * 100]


def entities() -> bytes:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    return docx(f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]>' + BODY.format(text="&l11;"))


def pdf(kids: str, count: int, pages: str) -> bytes:
    return (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        + f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {count}>>endobj\n{pages}trailer<</Root 1 0 R>>\n".encode()
    )


MANY_PAGES = pdf(" ".join(["3 0 R"] * 6000), 6000, "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\n")
CYCLE = pdf("2 0 R 3 0 R", 2, "3 0 obj<</Type/Pages/Parent 2 0 R/Kids[2 0 R]/Count 1>>endobj\n")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("entities.docx", entities(), "DOCX"),
        ("wrong.docx", b"not a zip archive", "not a DOCX"),
        ("pages.pdf", MANY_PAGES, "PDF|pages"),
        ("cycle.pdf", CYCLE, "PDF"),
        ("wrong.pdf", b"<html>a page</html>", "not a PDF"),
        ("binary.txt", b"\x89PNG\0\0\0\rIHDR", "binary"),
        ("script.html", b"<html><script>1</script></html>", "no readable text|no HTML"),
    ],
)
async def test_a_hostile_file_fails_with_a_reason(files: Rig, name: str, content: bytes, told: str) -> None:
    _, _, client = files
    folder = await make_folder(client)
    sent = await upload(client, folder, name, content)
    assert sent.status_code == 200, sent.text
    failed = await processed(client, sent.json())
    assert failed["processing_status"] == "error", failed
    assert any(each in failed["error_message"] for each in told.split("|")), failed["error_message"]
    assert (await client.get(f"/v1/folders/{folder['id']}/passages")).json() == []
    await stored(client, folder, "next.txt", "The next upload works.")


async def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    async with open_file_rig(tmp_path) as (_, _, client):
        folder = await make_folder(client)
        failed = await processed(client, (await upload(client, folder, "bomb.docx", bomb())).json())
        assert failed["processing_status"] == "error" and "unpacks to" in failed["error_message"]
        await stored(client, folder, "next.txt", "The next upload works.")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.txt", "..", "/etc/passwd.txt", "a\\b.txt", "a/b.txt", "\u202etxt.exe.txt", "x" * 300]
)
async def test_a_name_that_is_no_name_is_refused(files: Rig, name: str) -> None:
    _, _, client = files
    folder = await make_folder(client)
    refused = await upload(client, folder, "a.txt", "text", name=name)
    assert refused.status_code == 400 and refused.json()["detail"].startswith("name:"), refused.text
    as_file = await client.post(f"/v1/folders/{folder['id']}/upload", files={"file": (name, b"text")})
    assert as_file.status_code in (400, 415) or (await processed(client, as_file.json()))["file_name"] != name
    assert (await client.post("/v1/folders/", json={"name": name})).status_code in (400, 422)


@pytest.mark.parametrize(("name", "media_type"), [("x.exe", "application/octet-stream"), ("x", "image/png"), ("x", "")])
async def test_a_type_without_text_is_refused(files: Rig, name: str, media_type: str) -> None:
    _, _, client = files
    folder = await make_folder(client)
    refused = await upload(client, folder, name, b"MZ", media_type)
    assert refused.status_code == 415 and f"(filename: {name})" in refused.json()["detail"]
    assert refused.json()["detail"].startswith("Unsupported file type: ")


async def test_sizes_around_the_limit(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    form = 300  # bytes of the form around the file, about
    await stored(client, folder, "below.txt", "word " * ((LIMIT - form) // 5))
    above = await upload(client, folder, "above.txt", b"x" * LIMIT)
    assert above.status_code == 413 and "KELPIE_UPLOAD_BYTES_MAX" in above.json()["detail"]
    await stored(client, folder, "next.txt", "The next upload works.")


async def test_too_much_text_is_not_processed(tmp_path: Path) -> None:
    async with open_file_rig(tmp_path, file_text_mb_max=1) as (_, _, client):
        folder = await make_folder(client)
        failed = await processed(client, (await upload(client, folder, "a.txt", b"word " * 300_000)).json())
        assert failed["processing_status"] == "error" and "KELPIE_FILE_TEXT_MB_MAX" in failed["error_message"]
        assert (failed["total_chunks"], failed["content"]) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x\r\n\r\nno name\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n',
    ],
)
async def test_a_broken_form_is_refused(files: Rig, body: bytes) -> None:
    _, _, client = files
    folder = await make_folder(client)
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    refused = await client.post(f"/v1/folders/{folder['id']}/upload", content=body, headers=headers)
    assert refused.status_code == 400, refused.text
    plain = await client.post(f"/v1/folders/{folder['id']}/upload", json={"file": "text"})
    assert plain.status_code == 400 and "multipart/form-data" in plain.json()["detail"]
    assert (await client.get(f"/v1/folders/{folder['id']}/files")).json() == []


async def test_a_pattern_that_takes_for_ever_is_ended(files: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "PROGRAM", replace(grep.PROGRAM, cpu_s=1))
    _, puppet, client = files
    folder = await make_folder(client)
    await stored(client, folder, "a.txt", "a" * 60 + "!")
    agent = await make_agent(client, folder_ids=[folder["id"]])
    for pattern, told in (("(a+)+$", "takes more than 1 s"), ("(", "not a valid regular expression")):
        puppet.script += [called("grep_files", f'{{"pattern": "{pattern}"}}'), said("done")]
        sent = (await client.post(f"/v1/agents/{agent['id']}/messages", json={"input": "go"})).json()["messages"]
        result = next(each for each in sent if each["message_type"] == "tool_return_message")
        assert result["status"] == "error" and told in result["tool_return"]


async def test_another_organization_sees_nothing(files: Rig) -> None:
    _, _, client = files
    folder = await make_folder(client)
    file = await stored(client, folder, "a.txt", "secret")
    agent = await make_agent(client, folder_ids=[folder["id"]])
    made = (await client.post("/v1/admin/orgs/", json={"name": "other"})).json()
    user = (await client.post("/v1/admin/users/", json={"name": "u", "organization_id": made["id"]})).json()
    other = {"user_id": user["id"]}
    for path in (f"/v1/folders/{folder['id']}", f"/v1/folders/{folder['id']}/files/{file['id']}"):
        assert (await client.get(path, headers=other)).status_code == 404
    assert (await client.get(f"/v1/folders/{folder['id']}/files", headers=other)).json() == []
    assert (await client.get("/v1/folders/", headers=other)).json() == []
    assert (await client.delete(f"/v1/folders/{folder['id']}", headers=other)).status_code == 404
    assert (await client.delete(f"/v1/folders/{folder['id']}/{file['id']}", headers=other)).status_code == 404
    mine = (await client.post("/v1/agents/", json={"name": "x"}, headers=other)).json()
    attach = f"/v1/agents/{mine['id']}/folders/attach/{folder['id']}"
    assert (await client.patch(attach, headers=other)).status_code == 404
    foreign = f"/v1/agents/{agent['id']}/files/{file['id']}/open"
    assert (await client.patch(foreign, headers=other)).status_code == 404
    named = await client.post("/v1/agents/", json={"name": "y", "folder_ids": [folder["id"]]}, headers=other)
    assert named.status_code == 409
