"""Imports what a server imports with its first requests, for forks that become servers (tests/forks.py).

Only the process that is forked imports this. The routes of all are loaded, and whatever the modules of Kelpie import
lazily; the network client of a server comes with its first connection.
"""

import sys
from importlib import import_module
from types import ModuleType

from kelpie.server.routers import ROUTERS
from kelpie.world.lazy_imports import LazyModule

import_module("kelpie.world.http.aiohttp_transport")


def lazy() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("kelpie.") and _is_lazy(module)]


def _is_lazy(module: object) -> bool:
    return type(module) is LazyModule


for router in ROUTERS:
    router.load()
while found := lazy():
    for module in found:
        _ = getattr(module, "any_name", None)  # which runs its code
