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


def read_package_folder(package: str, folder: str) -> dict[str, bytes]:
    """The content of all files below a folder of a package, by their paths in it. Raises NotFound for an empty one."""
    spec = find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec else ():
        place = Path(root, folder)
        files = sorted(file for file in place.rglob("*") if file.is_file())
        if files:
            return {file.relative_to(place).as_posix(): file.read_bytes() for file in files}
    raise NotFound("Folder", f"{package}/{folder}")
