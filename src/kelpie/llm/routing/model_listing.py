"""TTL cache of one provider's model listing; a failure is cached too, for a shorter time."""

import asyncio
from collections.abc import Sequence

from kelpie.core.errors import ModelError
from kelpie.llm.local.server import LocalServer
from kelpie.llm.provider.interface import ModelInfo, Provider
from kelpie.observe import logs

LISTING_FRESH_S = 300.0
LISTING_RETRY_S = 15.0

_log = logs.get("llm")


class Listing:
    """The models of one provider, with at most one request at a time."""

    def __init__(self, provider: Provider, fresh_s: float = LISTING_FRESH_S, retry_s: float = LISTING_RETRY_S) -> None:
        """`retry_s` is the time until a failed listing, or one that lacks a model, is requested again."""
        self.provider = provider
        self._fresh_s = fresh_s
        self._retry_s = min(retry_s, fresh_s)
        self._lock = asyncio.Lock()
        self._models: Sequence[ModelInfo] | None = None
        self._by_name: dict[str, ModelInfo] = {}
        self._error: ModelError | None = None
        self._asked_at = 0.0

    async def models(self, fresh_s: float | None = None) -> Sequence[ModelInfo]:
        """The models, requested again when the last answer is older than `fresh_s`. Raises ModelError."""
        fresh_s = self._fresh_s if fresh_s is None else fresh_s
        async with self._lock:
            if self._age() > (min(self._retry_s, fresh_s) if self._error else fresh_s):
                await self._ask()
            if self._models is None:
                assert self._error is not None
                raise _again(self._error)
            return self._models

    async def renew(self) -> Sequence[ModelInfo]:
        """The models as the provider lists them now. Raises ModelError, also when there is an older listing."""
        async with self._lock:
            await self._ask()
            if self._error is not None:
                raise _again(self._error)
            assert self._models is not None
            return self._models

    async def find(self, name: str, *, renew: bool = False) -> ModelInfo | None:
        """The model of this name, in any of its spellings; a listing that lacks it is renewed first.

        Raises ModelError.
        """
        for fresh_s in (-1.0,) if renew else (self._fresh_s, self._retry_s):
            await self.models(fresh_s)
            if found := self.known(name):
                return found
        return None

    def known(self, name: str) -> ModelInfo | None:
        """The model of this name in the last listing, however old."""
        listed = self._by_name
        if found := listed.get(name):
            return found
        return next((listed[one] for one in spellings(self.provider, name) if one in listed), None)

    def _age(self) -> float:
        never = self._models is None and self._error is None
        return float("inf") if never else asyncio.get_running_loop().time() - self._asked_at

    async def _ask(self) -> None:
        try:
            self._models, self._error = await self.provider.models(), None
            self._by_name = {model.name: model for model in self._models}
        except ModelError as error:
            self._error = error
            if self._models is not None:
                _log.warning(
                    "model_list_stale",
                    "Model list could not be refreshed; using the previous one",
                    provider=self.provider.name,
                )
        finally:
            self._asked_at = asyncio.get_running_loop().time()


def spellings(provider: Provider, name: str) -> Sequence[str]:
    """The names under which a provider may list what a user calls `name`, best first."""
    return provider.spellings(name) if isinstance(provider, LocalServer) else (name,)


def _again(error: ModelError) -> ModelError:
    """The cached failure as an exception of its own: one object must not be raised in several tasks."""
    return ModelError(
        error.kind, error.message, detail=error.detail, hint=error.hint, retry_after_s=error.retry_after_s
    )
