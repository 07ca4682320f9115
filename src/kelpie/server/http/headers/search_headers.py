"""The mode of a search, and the reason if it is not the requested one, as headers: for answers that are a bare list in
Letta.
"""

from kelpie.core.search_hits import SearchMode
from kelpie.server.http.headers.answer_headers import MODE_HEADER, NOTE_HEADER


def mode_headers(mode: SearchMode, lacking: str | None, lost: int = 0) -> dict[str, str]:
    """The mode as headers. `lacking` is the reason for another mode than requested, `lost` the number of damaged
    results left out.
    """
    notes = search_notes(mode, lacking, lost)
    return {MODE_HEADER: mode, **({NOTE_HEADER: _plain(" ".join(notes))} if notes else {})}


def search_notes(mode: SearchMode, lacking: str | None, lost: int) -> list[str]:
    """Notes about a search, as sentences."""
    notes: list[str] = []
    if lacking is not None:
        how = "Full-text results only" if mode == "fts" else "Some results are from full-text search only"
        notes.append(f"{how}: {lacking}.")
    if lost:
        notes.append(f"Damaged on the disk and left out: {lost}. The log names them.")
    return notes


def _plain(note: str) -> str:
    """A text as one line of ASCII, for a header."""
    return " ".join(note.encode("ascii", "replace").decode().split())
