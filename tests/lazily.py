"""Large libraries that one test file needs: imported when the first of its tests uses them.

Every worker of a test run imports every test file, and few workers run the tests of such a file.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module that is imported when one of its names is looked up.

    The names that pytest looks up in everything it collects, which all begin with underscores, do not count.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazily(name: str) -> LazyModule:
    """A module that is imported when one of its names is first looked up. Raises ModuleNotFoundError at once."""
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return LazyModule(name)
