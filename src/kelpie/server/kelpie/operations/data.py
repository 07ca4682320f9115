"""The check of the stored data, for the operator."""

from dataclasses import asdict

from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/kelpie/data", "data (Kelpie)")


@router.get("", summary="Check the stored data for damage (Kelpie)", response_model=None)
async def check_data(api: CallerApi) -> JsonAnswer:
    state = await api.stored_data.look()
    return JsonAnswer({"sound": state.sound, **asdict(state)})
