"""Large libraries that one test file needs: imported when the first of its tests uses them.

Every worker of a test run imports every test file, and few workers run the tests of such a file.
"""

import importlib.util
import sys
from types import ModuleType


def lazily(name: str) -> ModuleType:
    """A module that is imported when one of its names is first looked up. Raises ModuleNotFoundError at once."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    loader = spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
