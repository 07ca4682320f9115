"""Reads, writes and lists files of an agent's workspace, inside a cell that has the workspace mounted.

It runs with the standard library alone and is never imported by the server. Whatever a path or a link says, it cannot
lead out of the cell; that it stays in the workspace is looked at here, so that the answer makes sense.
"""

from pathlib import Path

ROOT = Path("/workspace")
BYTES_READ_MAX = 64 * 1024 * 1024
CHARS_MAX = 50_000
ENTRIES_MAX = 1000


def perform(
    operation: str, path: str = "", content: str | None = None, start_line: int = 1, lines: int | None = None
) -> str:
    """Does one thing and says what came of it. Raises ValueError and OSError, in words for whoever asked."""
    if operation == "delete":
        return _deleted(_entry(path))
    place = _place(path)
    if operation == "list":
        return _listed(place)
    if operation == "read":
        return _read(place, start_line, lines)
    if place == ROOT:
        raise ValueError("'path' must name a file.")
    if content is None:
        raise ValueError("'content' is missing: say what to write.")
    return _written(place, content, append=operation == "append")


def _place(path: str) -> Path:
    if "\0" in path:
        raise ValueError("'path' holds a NUL character.")
    place = (ROOT / path.removeprefix(f"{ROOT}/").lstrip("/")).resolve()
    if not place.is_relative_to(ROOT):
        raise ValueError(f"'{path}' leads out of your workspace; nothing was done.")
    return place


def _entry(path: str) -> Path:
    """What the path names itself, which may be a link; whatever it leads to is not meant."""
    written = path.rstrip("/")
    name = Path(written).name
    if not name or name == "..":
        raise ValueError("'path' must name a file.")
    return _place(written[: -len(name)]) / name


def _shown(place: Path) -> str:
    return str(place.relative_to(ROOT))


def _listed(place: Path) -> str:
    if not place.is_dir():
        raise ValueError(f"There is no directory '{_shown(place)}'.")
    entries = sorted(place.iterdir())
    rows = [_row(entry) for entry in entries[:ENTRIES_MAX]]
    if len(entries) > ENTRIES_MAX:
        rows.append(f"[and {len(entries) - ENTRIES_MAX} more]")
    return "\n".join(rows) or f"'{_shown(place)}' is empty."


def _row(entry: Path) -> str:
    if entry.is_symlink():
        return f"{entry.name} -> {entry.readlink()}"
    return f"{entry.name}/" if entry.is_dir() else f"{entry.name} ({entry.stat().st_size} bytes)"


def _read(place: Path, start_line: int, lines: int | None) -> str:
    if not place.is_file():
        raise ValueError(f"There is no file '{_shown(place)}'.")
    with place.open("rb") as file:
        data = file.read(BYTES_READ_MAX)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"'{_shown(place)}' is not text: {len(data)} bytes."
    if start_line > 1 or lines is not None:
        first = max(1, start_line) - 1
        text = "".join(text.splitlines(keepends=True)[first : None if lines is None else first + max(0, lines)])
    if len(text) > CHARS_MAX:
        return f"{text[:CHARS_MAX]}\n[cut: {len(text)} characters; read on with start_line and lines]"
    return text


def _written(place: Path, content: str, *, append: bool) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8", "replace")
    if append:
        with place.open("ab") as file:
            file.write(data)
        return f"{len(data)} bytes were added to '{_shown(place)}'."
    unfinished = place.with_name(f"{place.name}.unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(place)
    return f"{len(data)} bytes are in '{_shown(place)}'."


def _deleted(place: Path) -> str:
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    elif place.exists() or place.is_symlink():
        place.unlink()
    else:
        raise ValueError(f"There is no file '{_shown(place)}'.")
    return f"'{_shown(place)}' is gone."
