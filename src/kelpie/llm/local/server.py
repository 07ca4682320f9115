"""A model server on the operator's own machines: Ollama, LM Studio, vLLM, llama.cpp, LocalAI, or a compatible one.

Its answers show which of them it is. Ollama is called in its own protocol, because only that has its settings and
times; all others in OpenAI's.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from kelpie.core.errors import InvalidInput, ModelError, ModelFault
from kelpie.llm.catalog import known_models
from kelpie.llm.local import forced_calls
from kelpie.llm.local.listings import find, without_defaults
from kelpie.llm.local.ollama import Ollama
from kelpie.llm.local.probing import Asker, ProbedServer, Progress
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.provider import errors as provider_errors
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import EmbeddingInfo, Event, HiddenModel, ModelInfo, Request
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy
from kelpie.llm.wire.http_channel import Channel
from kelpie.world.world import World

JOB_EVERY_S = 1.0
TAG_DEFAULT = ":latest"  # Ollama's tag of a name without one
_SELF_SERVICE = {
    "lmstudio": "LM Studio downloads and removes its models itself; use `lms get` or its user interface",
    "vllm": "vLLM serves the model it was started with; restart it with another model",
    "llamacpp": "llama.cpp serves the model it was started with; restart it with another model",
    "openai": "this server cannot download or remove models",
}


class LocalServer:
    """The provider at one address. `expected` is the kind that the setting names."""

    def __init__(
        self, world: World, endpoint: Endpoint, expected: str, limits: RetryLimits, *, pull_missing: bool = False
    ) -> None:
        self.name = endpoint.provider
        self.pull_missing = pull_missing
        root = endpoint.base_url.rstrip("/").removesuffix("/v1")
        self._endpoint = replace(endpoint, base_url=root)
        self._expected = expected
        self._limits = limits
        self._channel = Channel(world, self._endpoint)
        self._ollama = Ollama(world, self._channel, limits)
        self._chat = OpenAIChat(world, replace(endpoint, base_url=f"{root}/v1"), limits)
        self._found: ProbedServer | None = None
        self._finding = asyncio.Lock()
        self._dimensions: dict[str, int] = {}  # measured, by embedding model
        self._unmeasured: dict[str, str] = {}  # why the size of an embedding model could not be measured

    @property
    def server(self) -> str | None:
        """The kind of server that answered; None before the first request."""
        return self._found.server if self._found else None

    @property
    def address(self) -> str:
        """The base URL of the server, without a password."""
        return self._endpoint.shown

    @property
    def hidden(self) -> Sequence[HiddenModel]:
        """Models of the server that cannot chat, and why."""
        hidden = self._found.hidden if self._found else ()
        return tuple(
            replace(each, reason=f"{each.reason}, but it could not be used: {self._unmeasured[each.name]}")
            if each.name in self._unmeasured
            else each
            for each in hidden
        )

    async def models(self) -> Sequence[ModelInfo]:
        """The chat models that the server has. Raises ModelError."""
        async with self._finding:
            self._found = await find(Asker(self._channel, self._limits), self._expected)
            self._unmeasured.clear()
        return self._found.models

    async def embeddings(self, only: Sequence[str] | None = None) -> Sequence[EmbeddingInfo]:
        """The embedding models, or those of these names. The size of one is measured where the server does not report
        it; one that cannot be measured is left out. Raises ModelError."""
        found: list[EmbeddingInfo] = []
        for each in (await self._known()).embeddings:
            if only is not None and each.name not in only:
                continue
            if size := each.dimensions or await self._measure(each):
                found.append(replace(each, dimensions=size))
        return found

    async def embed(self, info: EmbeddingInfo, texts: Sequence[str], *, patient: bool = False) -> list[bytes]:
        """See `EmbeddingProvider.embed`; all of these servers support OpenAI's protocol for it. Raises ModelError."""
        found = await self._known()
        return await self._chat.embed(replace(info, name=found.ids.get(info.name, info.name)), texts)

    def describe(self, name: str) -> ModelInfo:
        listed = {model.name: model for model in (self._found.models if self._found else ())}
        known = next((listed[spelled] for spelled in self.spellings(name) if spelled in listed), None)
        return known or without_defaults(known_models.info(self._expected, self._endpoint, name, {}))

    def spellings(self, name: str) -> tuple[str, ...]:
        """The names under which the server may list what a user calls `name`: Ollama's have a tag, and a model may be
        known by its path on the server."""
        ids = self._found.ids if self._found else {}
        by_path = tuple(short for short, path in ids.items() if path == name)
        if (self.server or self._expected) == "ollama" and ":" not in name.rpartition("/")[2]:
            return (name, f"{name}{TAG_DEFAULT}")
        return (name, *by_path)

    async def close(self) -> None:
        await self._channel.close()
        await self._chat.close()

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model, which is pulled first if it is missing and allowed. Raises ModelError."""
        found = await self._known()
        request = self._addressed(request, found)
        try:
            async with aclosing(self._ask(request, found)) as events:
                async for event in events:
                    yield event
            return
        except ModelError as error:
            if not _is_missing(error):
                raise
            if not (self.pull_missing and found.server in ("ollama", "localai")):
                raise self._missing(request.model, error, found) from error
        await self.fetch(request.model)
        async with aclosing(self._ask(request, await self._known())) as events:
            async for event in events:
                yield event

    async def payload(self, request: Request) -> bytes:
        """The body of the call, without making it. Raises ModelError when the server does not answer."""
        found = await self._known()
        request = self._addressed(request, found)
        if found.server == "ollama":
            return self._ollama.payload(request, found)
        request, as_json = self._understood(request, found)
        return await self._chat.payload(forced_calls.as_schema(request) if as_json else request)

    async def fetch(self, name: str) -> None:
        """Pulls a model and waits until it is available. Raises ModelError."""
        async with aclosing(self.pull(name)) as steps:
            async for _ in steps:
                pass

    async def pull(self, name: str) -> AsyncGenerator[Progress, None]:
        """Pulls a model onto the server and yields the progress. Raises ModelError, InvalidInput where the server
        cannot pull."""
        server = (await self._known()).server
        if server in _SELF_SERVICE:
            raise InvalidInput("model", f"'{name[:80]}' cannot be pulled: {_SELF_SERVICE[server]}")
        steps = self._ollama.pull(name) if server == "ollama" else self._install(name)
        async with aclosing(steps):
            async for step in steps:
                yield step
        await self.models()

    async def remove(self, name: str) -> None:
        """Deletes a model from the server. Raises ModelError, InvalidInput where the server cannot delete."""
        server = (await self._known()).server
        if server in _SELF_SERVICE:
            raise InvalidInput("model", f"'{name[:80]}' cannot be removed: {_SELF_SERVICE[server]}")
        if server == "ollama":
            await self._ollama.remove(name)
        else:
            await self._localai(f"models/delete/{quote(name, safe='')}", {})
        await self.models()

    def command(self, name: str) -> str | None:
        """The command that installs a missing model; None when this server cannot pull any."""
        server = self.server or self._expected
        return f"kelpie models pull {self.name}/{name}" if server in ("ollama", "localai") else None

    def _addressed(self, request: Request, found: ProbedServer) -> Request:
        """The request with the server's own id of the model."""
        name = self.describe(request.model).name
        own = found.ids.get(name, name)
        return request if own == request.model else replace(request, model=own)

    async def _measure(self, info: EmbeddingInfo) -> int:
        """The size of the vectors of this model, asked once; 0 when it cannot embed."""
        if info.name in self._unmeasured:  # until the models are listed again
            return 0
        if info.name not in self._dimensions:
            try:
                (vector,) = await self.embed(info, ("size",))
            except ModelError as error:
                self._unmeasured[info.name] = f"{error.message} {error.detail or ''}".rstrip()
                return 0
            self._dimensions[info.name] = len(vector) // 4
        return self._dimensions[info.name]

    def _ask(self, request: Request, found: ProbedServer) -> AsyncGenerator[Event, None]:
        if found.server == "ollama":
            return self._ollama.stream(request, found)
        request, as_json = self._understood(request, found)
        return forced_calls.stream(self._chat.stream, request) if as_json else self._chat.stream(request)

    def _understood(self, request: Request, found: ProbedServer) -> tuple[Request, bool]:
        """The request as the server understands it, and whether a forced call must be requested as JSON."""
        if found.server != "llamacpp" or not forced_calls.is_forced(request):
            return request, False
        return forced_calls.with_one_choice(request), not self.describe(request.model).tools

    async def _known(self) -> ProbedServer:
        if self._found is None:
            await self.models()
        assert self._found is not None
        return self._found

    def _missing(self, name: str, error: ModelError, found: ProbedServer) -> ModelError:
        command = self.command(name)
        if command is None:
            return error
        return ModelError(
            ModelFault.bad_request,
            f"{self.name} does not have the model '{name}'.",
            detail=error.detail,
            hint=f"Type `{command}`, or set KELPIE_PULL_MISSING_MODELS=true so that missing models are pulled.",
        )

    # --- LocalAI -------------------------------------------------------------------------------------------------

    async def _install(self, name: str) -> AsyncGenerator[Progress, None]:
        """Installs a model from LocalAI's gallery, in the background; polls its job until it is done."""
        job = (await self._localai("models/apply", {"id": name})).get("uuid")
        if not isinstance(job, str):
            raise provider_errors.unreadable(self._endpoint, "it contains no job id", "")
        patience = RetryPolicy(replace(self._limits, total_s=self._limits.pull_s))
        while patience.left_s() > 0:
            state = await self._localai(f"models/jobs/{quote(job, safe='')}")
            if problem := state.get("error"):
                raise ModelError(ModelFault.server, f"{self.name} could not install '{name}'.", detail=str(problem))
            yield Progress(str(state.get("message") or "installing"), _percent(state.get("progress")), 100)
            if state.get("processed"):
                return
            await asyncio.sleep(JOB_EVERY_S)
        raise ModelError(ModelFault.timeout, f"{self.name} did not finish installing '{name}'.")

    async def _localai(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await Asker(self._channel, self._limits).read(path, body)


def _is_missing(error: ModelError) -> bool:
    told = (error.detail or "").lower()
    return (
        error.kind is ModelFault.bad_request and "model" in told and ("not found" in told or "does not exist" in told)
    )


def _percent(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
