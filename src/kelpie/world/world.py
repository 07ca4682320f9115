"""One object with everything the product needs from the outside world."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kelpie.world.cells.port import Cells
from kelpie.world.clock import Clock
from kelpie.world.database import Database
from kelpie.world.embedding.port import Embedder
from kelpie.world.files.disk_space import DiskSpace
from kelpie.world.files.uploads import DirectoryUploads, Uploads
from kelpie.world.files.workspaces import Workspaces
from kelpie.world.http.port import Http
from kelpie.world.ids import Ids
from kelpie.world.keyring import Keyring
from kelpie.world.processes.processes import Processes
from kelpie.world.workers.port import Workers
from kelpie.world.workers.processes import ProcessWorkers


def _never() -> bool:
    return False


def _unknown() -> None:
    return None


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    ids: Ids
    random: random.Random
    database: Database
    http: Http
    processes: Processes
    uploads: Uploads = field(default_factory=DirectoryUploads)
    workers: Workers = field(default_factory=ProcessWorkers)  # starts nothing before it is asked
    embedder: Embedder | None = None  # None: nothing on this machine can embed
    cells: Cells | None = None  # None: nothing here can hold code that is not ours
    workspaces: Workspaces | None = None  # None: agents have no files of their own
    memory_bytes: int = 16 * 1024**3  # of this machine
    lacks_files: Callable[[], bool] = _never  # True if no further file can be opened
    disk_space: Callable[[], DiskSpace | None] = _unknown  # where the data is
    keyring: Keyring = field(default_factory=Keyring)  # without a key no secret can be stored
