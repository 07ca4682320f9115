"""`kelpie folders` and `kelpie files` against a real server: a folder is filled, attached, read and deleted."""

from pathlib import Path

from tests.cli.live import Live


def test_a_folder_is_filled_attached_shown_and_deleted(running: Live, tmp_path: Path) -> None:
    running.json("agents", "create", "librarian")
    told = running.kelpie("folders", "create", "shelf", "--description", "Old books").stdout
    assert told.startswith("Created folder shelf (source-")
    book = tmp_path / 'a "book".txt'
    book.write_text("Penguins live in the south.\n")
    assert running.kelpie("files", "upload", "shelf", str(book)).stdout == (
        'Uploaded a "book".txt to shelf: 1 passages.\n'
    )
    listed = running.json("files", "list", "shelf")
    assert [(each["file_name"], each["processing_status"]) for each in listed] == [('a "book".txt', "completed")]
    assert "completed" in running.kelpie("files", "list", "shelf").stdout
    shown = running.kelpie("files", "show", "shelf", 'a "book".txt', "--text").stdout
    assert shown == "Penguins live in the south.\n"
    assert "text/plain" in running.kelpie("files", "show", "shelf", listed[0]["id"]).stdout
    attached = running.kelpie("folders", "attach", "shelf", "librarian").stdout
    assert attached == "Attached folder shelf to librarian.\n"
    assert [each["name"] for each in running.json("folders", "list", "--agent", "librarian")] == ["shelf"]
    assert "shelf" in running.kelpie("folders", "list").stdout
    assert running.kelpie("folders", "detach", "shelf", "librarian").stdout == (
        "Detached folder shelf from librarian.\n"
    )
    assert running.kelpie("files", "delete", "shelf", 'a "book".txt', "--yes").stdout == (
        'Deleted file a "book".txt.\n'
    )
    assert "has no file named" in running.kelpie("files", "show", "shelf", "gone.txt").stderr
    assert running.kelpie("folders", "delete", "shelf", "--yes").stdout == "Deleted folder shelf.\n"
    assert "there is no folder named 'shelf'" in running.kelpie("files", "list", "shelf").stderr


def test_a_file_that_cannot_be_read_is_an_error(running: Live, tmp_path: Path) -> None:
    running.kelpie("folders", "create", "damaged")
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 nothing")
    failed = running.kelpie("files", "upload", "damaged", str(broken))
    assert failed.returncode != 0 and "The file cannot be read" in failed.stderr
    refused = running.kelpie("files", "upload", "damaged", str(tmp_path / "missing.txt"))
    assert refused.returncode != 0 and "cannot be read" in refused.stderr
