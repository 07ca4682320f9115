"""Check of the server's password, and the identity of the client."""

from fastapi import Request
from pydantic import BaseModel, Field

from kelpie.server.edge.authentication import address_of
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource

router = resource("/auth", "auth")


class AuthRequest(BaseModel):
    password: str = Field("", max_length=1024, description="The password to check.")


@router.post("", summary="Check the server password", response_model=None)
async def authenticate(api: CallerApi, request: Request, body: AuthRequest) -> JsonAnswer:
    await request.app.state.authenticator.check_password(body.password, address_of(request.scope))
    return JsonAnswer({"uuid": api.caller.user_id.uuid, "is_admin": api.caller.operator})
