"""Encryption of stored secrets: its keys and their rotation, for the operator only. No answer holds a key."""

from typing import Annotated, Any

from fastapi import Query

from kelpie.encryption.rotation import EncryptionStatus
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/kelpie/encryption", "encryption (Kelpie)")

UNREADABLE_MAX = 100
WAIT_S_MAX = 60.0

WaitSeconds = Annotated[
    float, Query(ge=0, le=WAIT_S_MAX, description="How long to wait for the end of a running rotation.")
]


@router.get("", summary="Get the encryption keys' ids and the state of a rotation (Kelpie)", response_model=None)
async def report(api: CallerApi, wait_s: WaitSeconds = 0.0) -> JsonAnswer:
    return JsonAnswer(_shape(await api.key_rotation.status(wait_s)))


@router.post("/rotate", summary="Encrypt all stored secrets with a new key (Kelpie)", response_model=None)
async def rotate(api: CallerApi) -> JsonAnswer:
    return JsonAnswer(_shape(await api.key_rotation.rotate()))


def _shape(status: EncryptionStatus) -> dict[str, Any]:
    return {
        "origin": status.origin,
        "rotating": status.rotating,
        "keys": [
            {"id": key.id, "current": key.current, "lost": key.lost, "created_at": timestamp(key.created_at)}
            for key in status.keys
        ],
        "unreadable": [str(place) for place in status.unreadable[:UNREADABLE_MAX]],
        "unreadable_count": len(status.unreadable),
    }
