"""Files that an installed Python package contains."""

from importlib.util import find_spec
from pathlib import Path

from kelpie.core.errors import NotFound


def read_package_file(package: str, name: str) -> bytes:
    """The content of a file of a package, which is not imported for it. Raises NotFound."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder, name)
        if file.is_file():
            return file.read_bytes()
    raise NotFound("File", f"{package}/{name}")
