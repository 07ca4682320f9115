"""Images by their address: fetched from the internet only, and only where the model cannot do it itself."""

import base64

import httpx
import pytest

from kelpie.agent.inbox.image_inputs import FIELD, fetched, settled
from kelpie.core.conversations.messages import Image, NewMessage, Role, Text
from kelpie.core.errors import InvalidInput
from kelpie.core.models.image_limits import IMAGE_BYTES_MAX
from kelpie.core.public_addresses import is_public
from kelpie.core.settings.settings import Settings
from kelpie.llm.routing.models import Models
from kelpie.world.http.port import NetworkHttp
from tests.agent.conftest import ScriptModel
from tests.llm.fakes import TransportHttp, world

PNG = b"\x89PNG data"
ADDRESS = "https://pictures.example/x.png"


def serving(*answers: httpx.Response) -> TransportHttp:
    left = list(answers)
    return TransportHttp(httpx.MockTransport(lambda request: left.pop(0)))


def picture(content: bytes = PNG, kind: str = "image/png", status: int = 200) -> httpx.Response:
    return httpx.Response(status, headers={"content-type": kind}, content=content)


async def test_an_image_is_fetched_also_after_a_redirect():
    moved = httpx.Response(302, headers={"location": "https://elsewhere.example/y.png"})
    image = await fetched(serving(moved, picture(kind="image/png; charset=x")), ADDRESS)
    assert image.source == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (picture(status=404), "answered with status 404"),
        (picture(kind="text/html"), "content type is not one of"),
        (picture(b"x" * (IMAGE_BYTES_MAX + 1)), "larger than"),
    ],
)
async def test_what_is_no_image_is_refused(answer: httpx.Response, told: str):
    with pytest.raises(InvalidInput, match=told) as caught:
        await fetched(serving(answer), ADDRESS)
    assert caught.value.field == FIELD and "send it as base64" in caught.value.remedy


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.png", "http://[::1]:9/x.png", "http://localhost:9/x.png"])
async def test_private_addresses_are_not_reached_by_number_or_by_name(url: str):
    with pytest.raises(InvalidInput, match="is not a public address"):
        await fetched(NetworkHttp(), url)


@pytest.mark.parametrize("handle", ["ollama/llava", "openai/gpt-4o"])
async def test_only_who_fetches_nothing_is_given_the_data(handle: str):
    provider = ScriptModel()
    provider.name = handle.partition("/")[0]
    models = Models(world(), Settings(), [provider])
    models.known = lambda handle: None  # type: ignore[method-assign]
    said = (NewMessage(Role.user, (Text("see"), Image({"type": "url", "url": ADDRESS}))),)
    (message,) = await settled(serving(picture()), models, handle, said)
    kept = message.content[1]
    assert isinstance(kept, Image) and (kept.source["type"] == "base64") == handle.startswith("ollama")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("127.0.0.1", False), ("10.1.2.3", False),
        ("169.254.169.254", False), ("192.168.0.1", False), ("100.64.0.1", False), ("0.0.0.0", False), ("::1", False),
        ("224.0.0.1", False), ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True), ("64:ff9b::a00:1", False), ("2002:a00:1::", False),
    ],
)  # fmt: skip
def test_public_addresses(address: str, public: bool):
    assert is_public(address) is public
