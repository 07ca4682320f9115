"""Status of the sandbox: if tool code can run, how much runs and waits, and what the pool of cells did."""

from kelpie.core.tools.confinement import Isolation
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/sandbox", "sandbox (Kelpie)")

NOTHING_HERE = "this server has no sandbox for tool code"


@router.get("", summary="Get the state and load of the sandbox (Kelpie)", response_model=None)
async def report(api: CallerApi) -> JsonAnswer:
    sandbox = api.sandbox
    lacking = NOTHING_HERE if sandbox is None else sandbox.lacking
    return JsonAnswer(
        {
            "isolation": None if lacking else Isolation.process.value,
            "required": api.settings.sandbox_isolation,
            "lacking": lacking,
            "unbounded": None if sandbox is None else sandbox.unbounded,
            "counts": {} if sandbox is None else sandbox.counts(),
        }
    )
