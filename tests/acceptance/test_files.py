"""Folders and files with the official client against a live server that is killed while it processes a file."""

from pathlib import Path
from typing import Any

from letta_client import Letta

from tests.acceptance.served import served, wait_for

DEADLINE_S = 120.0
LINES = 400


def strict(url: str) -> Letta:
    return Letta(base_url=url, api_key="none", max_retries=0, _strict_response_validation=True)


def test_a_file_is_processed_although_the_server_is_killed(tmp_path: Path) -> None:
    text = "".join(f"Line {number} is about penguins, tea and the number {number * 7}.\n" for number in range(LINES))
    with served(tmp_path / "data") as server:
        client = strict(server.url)
        folder = client.folders.create(name="docs")
        agent = client.agents.create(name="reader", model="kelpie/demo", folder_ids=[folder.id])
        sent = client.folders.files.upload(folder.id, file=("long.txt", text.encode()))
        server.kill()
        server.start()
        client = strict(server.url)

        def found() -> Any:
            return client.folders.files.retrieve(sent.id, folder_id=folder.id)

        wait_for("the file is completed", lambda: found().processing_status == "completed", DEADLINE_S)
        done = client.folders.files.retrieve(sent.id, folder_id=folder.id, include_content=True)
        assert (done.content, done.error_message) == (text, None)
        assert done.total_chunks and done.chunks_embedded is not None
        (seen,) = client.agents.files.list(agent.id).files
        assert (seen.file_name, seen.is_open) == ("docs/long.txt", True)
        assert seen.visible_content is not None
        assert seen.visible_content.startswith(f"[Viewing file start (out of {LINES} lines)]\n1: Line 0 is about")
        assert list((tmp_path / "data" / "kept-uploads").iterdir()) == []
