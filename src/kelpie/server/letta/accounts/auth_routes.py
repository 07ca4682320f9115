"""Asks whether a password is the server's, and who the asker is."""

from fastapi import Request
from pydantic import BaseModel, Field

from kelpie.server.edge.authentication import address_of
from kelpie.server.http.caller_api import House
from kelpie.server.http.json_answer import Answer
from kelpie.server.http.router import resource

router = resource("/auth", "auth")


class AuthRequest(BaseModel):
    password: str = Field("", max_length=1024, description="The password to check.")


@router.post("", summary="Check the server's password", response_model=None)
async def authenticate(kelpie: House, request: Request, body: AuthRequest) -> Answer:
    await request.app.state.kelpie.gate.check_password(body.password, address_of(request.scope))
    return Answer({"uuid": kelpie.caller.user_id.uuid, "is_admin": kelpie.caller.operator})
