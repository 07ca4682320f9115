"""The real thing in a simulated node: `Kelpie` with all its rooms and its HTTP application; only ports are replaced.

A model is reached through the provider's own wire code, a database through the production's commit group; a restart
boots another Kelpie on the same disk.
"""

from dataclasses import dataclass, replace

from kelpie.app import Kelpie
from kelpie.core.settings import Settings
from kelpie.server.app import create_app
from kelpie.sim.database import SimDatabase
from kelpie.sim.doors import serve_doors
from kelpie.sim.scenarios.finder import FailingFinder
from kelpie.sim.scenarios.journal_points import JournalPoints
from kelpie.sim.scenarios.outside import OutsideTool
from kelpie.sim.server import App
from kelpie.sim.stage import LLM_HOST
from kelpie.storage.schema import create
from kelpie.tools.port import ExternalTool
from kelpie.world.database import Tx
from kelpie.world.packages import Packages
from kelpie.world.world import World

MODEL = "openai/scripted"
SETTINGS = Settings(
    default_model=MODEL,
    openai_base_url=f"http://{LLM_HOST}/v1",
    openai_api_key="sim-key",
    model_timeout_s=60.0,
    model_attempts=3,
)


@dataclass(frozen=True, slots=True)
class RunningKelpie:
    """One life of the server."""

    asgi: App
    kelpie: Kelpie

    async def stop(self) -> None:
        await self.kelpie.stop(self.kelpie.settings.drain_s)


def schema(tx: Tx) -> None:
    """The schema that the server itself would make on an empty disk."""
    create(tx)


async def boot(
    world: World, settings: Settings, external: ExternalTool | None = None, packages: Packages | None = None
) -> RunningKelpie:
    """Starts Kelpie as `kelpie server start` does. Raises what its start raises."""
    assert isinstance(world.database, SimDatabase)
    finder = FailingFinder(world.database.faults)
    world = replace(world, database=JournalPoints(world.database))
    kelpie = Kelpie(world, settings, external=external or OutsideTool(world), packages=packages, finder=finder)
    await kelpie.start()
    app = create_app(kelpie)
    kelpie.broker.api = serve_doors(app)
    return RunningKelpie(app, kelpie)
