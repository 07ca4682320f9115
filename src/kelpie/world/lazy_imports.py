"""Modules that are imported with their first use: most servers never need them, and would hold them for good.

    with lazily:
        from kelpie.agent.resources import checkpoints as _checkpoints

The import stands at the top of its file, where people, the type checker and import-linter look for it. The module is
there at once, and runs its code when one of its names is first looked up, as in `_checkpoints.Checkpoints`. Import
modules and not their names, which would look one up at once. A package is imported as ever.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module whose code has not run yet. It becomes a plain module when it has."""

    def __getattr__(self, name: str) -> Any:
        """Finds a name by running the module's code. Raises what that raises, and will run it again the next time."""
        _run(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a name after the module's code has run, which would set it again. The names of imports do not count."""
        if not name.startswith("__"):
            _run(self)
        object.__setattr__(self, name, value)


def _run(module: ModuleType) -> None:
    state: _State | None = module.__dict__.get("__lazy__")
    if state is not None:
        state.run(module)


class _State:
    """How far a module is. Other threads wait until its code has run; the code itself sees what it has made so far."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = RLock()
        self._running = False

    def run(self, module: ModuleType) -> None:
        with self._lock:
            if self._running or "__lazy__" not in module.__dict__:
                return
            self._running = True
            try:
                self._loader.exec_module(module)
                module.__class__ = ModuleType
                del module.__dict__["__lazy__"]
            finally:
                self._running = False


class _Loader:
    """Makes a lazy module in place of a loaded one."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__dict__["__lazy__"] = _State(self._loader)


class _Lazily:
    """The context in which modules are not yet loaded."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target)
        if found is None or found.submodule_search_locations is not None:
            return None
        found.loader = _Loader(found.loader)  # type: ignore[assignment]
        return found

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]


lazily = _Lazily()
