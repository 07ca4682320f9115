"""The file of a sentence encoder's graph in the cache: its name says what it was built from, and how."""

from pathlib import Path
from zlib import crc32

_FORM = 2  # goes up when the graph is built differently
_SOURCES = ("config.json", "model.safetensors")


def graph_file(place: Path, cache: Path, precision: str) -> Path:
    """The file for the model in `place`. Its name changes with the files there: reading them all at every start would
    cost more than loading them. Raises OSError."""
    found = [(name, (place / name).stat()) for name in _SOURCES]
    of = crc32(repr([(name, each.st_size, each.st_mtime_ns) for name, each in found]).encode())
    return cache / f"sentence-model-{_FORM}-{precision}-{of:08x}.onnx"
