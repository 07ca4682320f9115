"""What the server tells of its sandbox."""

from pathlib import Path

from tests.server.test_models_api import served


async def test_the_sandbox_tells_what_it_requires_and_what_it_did(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        told = (await client.get("/v1/kelpie/sandbox")).json()
    assert told["required"] == "process"
    assert (told["isolation"] is None) is (told["lacking"] is not None)
    assert not told["counts"] or told["counts"]["running"] == told["counts"]["waiting"] == 0
