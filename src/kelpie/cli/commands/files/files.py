"""`kelpie files`: files of folders, which agents read."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from kelpie.cli.commands.files.lookup import File, Folder, find_file, find_folder
from kelpie.cli.confirmation import confirm
from kelpie.cli.options import AsJson, Limit, Url, client, examples, group, path
from kelpie.cli.output import cell, print_facts, print_json, print_list, print_text, say
from kelpie.core.errors import KelpieError
from kelpie.world.files import json_file
from kelpie.world.http.cli_client import Client

UPLOAD_S = 600.0
LOOK_EVERY_S = 0.2
UNFINISHED = ("pending", "parsing", "embedding")

commands = group(
    "Upload files to a folder, and list, show and delete them.",
    "files upload handbook rules.pdf",
    "files list handbook",
    "files show handbook rules.pdf --text",
)


class FileNotProcessed(KelpieError):
    """The server could not process an uploaded file."""


@commands.command(epilog=examples("files upload handbook rules.pdf", "files upload handbook notes.md --duplicate skip"))
def upload(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="File to upload.")],
    name: Annotated[str | None, typer.Option(help="Name in the folder. Defaults to that of the file.")] = None,
    duplicate: Annotated[
        str, typer.Option(help="If the folder has a file of this name: suffix, replace, skip or error.")
    ] = "suffix",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the file is processed.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Upload a file to a folder and wait until agents can read it."""
    server = client(url, UPLOAD_S)
    found = find_folder(server, folder)
    query = {"duplicate_handling": duplicate} | ({"name": name} if name is not None else {})
    target = f"{path('folders', found['id'], 'upload')}?{urlencode(query)}"
    made = server.upload(target, file.name, json_file.raw(file), UPLOAD_S)
    if not no_wait:
        made = _processed(server, made)
    if as_json:
        print_json(made)
    else:
        state = "it is being processed" if no_wait else f"{made['total_chunks']} passages"
        say(f"Uploaded {cell(made['original_file_name'])} to {cell(found['name'])}: {state}.")


def _processed(server: Client, made: dict[str, Any]) -> dict[str, Any]:
    """The file when its processing is over. Raises FileNotProcessed."""
    place = path("folders", made["source_id"], "files", made["id"])
    made = server.wait_while(place, "processing_status", UNFINISHED, LOOK_EVERY_S)
    if made["processing_status"] == "error":
        raise FileNotProcessed(made["error_message"] or "the file could not be processed")
    return made


@commands.command("list", epilog=examples("files list handbook", "files list handbook --json"))
def list_files(folder: Folder, limit: Limit = 50, as_json: AsJson = False, url: Url = None) -> None:
    """List the files of a folder, newest first."""
    server = client(url)
    found = server.get(path("folders", find_folder(server, folder)["id"], "files"), limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["id"], each["file_name"], each["processing_status"], each["file_size"], each["file_type"])
        for each in found
    ]
    print_list(("id", "name", "status", "bytes", "type"), rows, "No files.", spare=("type", "id"))


@commands.command(epilog=examples("files show handbook rules.pdf", "files show handbook rules.pdf --text"))
def show(
    folder: Folder,
    file: File,
    text: Annotated[bool, typer.Option("--text", help="Print the text of the file.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show a file, or its text as agents read it."""
    server = client(url, UPLOAD_S)
    found = find_file(server, find_folder(server, folder), file)
    query = {"include_content": "true"} if text else {}
    shown = server.get(path("folders", found["source_id"], "files", found["id"]), **query)
    if as_json:
        print_json(shown)
    elif text:
        print_text(shown["content"] or "")
    else:
        names = ("id", "file_name", "file_type", "file_size", "processing_status", "error_message")
        facts = {name.replace("_", " "): shown[name] for name in names}
        print_facts(facts | {"passages": shown["total_chunks"], "embedded": shown["chunks_embedded"]})


@commands.command(epilog=examples("files delete handbook rules.pdf", "files delete handbook rules.pdf --yes"))
def delete(
    folder: Folder,
    file: File,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    url: Url = None,
) -> None:
    """Delete a file. Agents can no longer read it."""
    server = client(url)
    found = find_file(server, find_folder(server, folder), file)
    confirm(f"Delete file {cell(found['file_name'])}?", "deleting the file", yes=yes)
    server.delete(path("folders", found["source_id"], found["id"]))
    say(f"Deleted file {cell(found['file_name'])}.")
