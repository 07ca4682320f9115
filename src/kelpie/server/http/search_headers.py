"""How a search was made, and why not as asked, as headers: for answers that are a bare list in Letta."""

from kelpie.core.search_hits import SearchMode

MODE_HEADER = "X-Kelpie-Search-Mode"
NOTE_HEADER = "X-Kelpie-Search-Note"


def how_shape(mode: SearchMode, lacking: str | None, lost: int = 0) -> dict[str, str]:
    """`lacking` is why it was not made as asked, `lost` how many more would have been found that are damaged."""
    notes = search_notes(mode, lacking, lost)
    return {MODE_HEADER: mode, **({NOTE_HEADER: _plain(" ".join(notes))} if notes else {})}


def search_notes(mode: SearchMode, lacking: str | None, lost: int) -> list[str]:
    """What is to be told about a search, in sentences."""
    notes: list[str] = []
    if lacking is not None:
        how = "Full-text results only" if mode == "fts" else "Some results are from full-text search only"
        notes.append(f"{how}: {lacking}.")
    if lost:
        notes.append(f"Damaged on the disk and left out: {lost}. The log names them.")
    return notes


def _plain(note: str) -> str:
    """A header is one line of ASCII."""
    return " ".join(note.encode("ascii", "replace").decode().split())
