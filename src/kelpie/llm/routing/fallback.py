"""Fallback chain of models: when one fails in a way that another may not, the next is called instead.

Only before anything was yielded: half an answer of one model and half of another would be no answer. The reply has the
handle of the model that gave it, unless it is the agent's own.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.core.models.prices import Price, charged
from kelpie.llm.provider.interface import ChatProvider, Event, Reply, Request
from kelpie.observe import logs

FALLBACKS_OPTION = "fallbacks"  # among an agent's model settings: its own chain, instead of the server's
CHAIN_MAX = 8

# Not errors of the request itself: another model would refuse it too, or hide the mistake.
CURABLE = frozenset(
    {
        ModelFault.authentication,
        ModelFault.insufficient_credits,
        ModelFault.rate_limit,
        ModelFault.timeout,
        ModelFault.connection,
        ModelFault.server,
        ModelFault.malformed,
    }
)

_ALL = frozenset(ModelFault)  # a fallback was not chosen by name, so any failure moves on

_log = logs.get("llm")

Find = Callable[[str], tuple[ChatProvider, str]]
PriceOf = Callable[[str], Price | None]
Fit = Callable[[str, Request], Request]


class FallbackChain:
    """A model and its fallbacks. `find` gives the provider of a handle; it raises CallerError.

    `fit` removes from a request what a model does not accept. Every reply has its cost, by the price that the model
    which gave it had when it was asked: `price_of` knows that.
    """

    def __init__(self, find: Find, handle: str, server_chain: Sequence[str], fit: Fit, price_of: PriceOf) -> None:
        self._find = find
        self._handle = handle
        self._server_chain = server_chain
        self._fit = fit
        self._price_of = price_of
        self._own = find(handle)[0]

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model, then its fallbacks. Raises the ModelError of the first when all fail."""
        price = self._price_of(self._handle)
        try:
            async with aclosing(_unbroken(self._own, self._fit(self._handle, request), CURABLE)) as events:
                async for event in events:
                    yield _charged(event, price) if isinstance(event, Reply) else event
            return
        except _CurableFailure as failure:
            first = failure.error
            chain = chain_of(self._handle, request.options, self._server_chain)
        tried: list[str] = []
        last = first
        for handle in chain:
            _log.warning(
                "model_fallback",
                "Model failed; asking the next model of the fallback chain",
                handle=handle,
                kind=last.kind.value,
                error=last.message,
            )
            tried.append(handle)
            try:
                provider, name = self._find(handle)
                price = self._price_of(handle)
                fitted = self._fit(handle, _fitted(request, provider, name))
                async with aclosing(_unbroken(provider, fitted, _ALL)) as events:
                    async for event in events:
                        if isinstance(event, Reply):
                            event = replace(_charged(event, price), answered_by=handle)
                        yield event
                return
            except _CurableFailure as failure:
                last = failure.error
            except CallerError as error:
                last = ModelError(ModelFault.bad_request, str(error))
        raise _all_failed(first, tried)


class _CurableFailure(Exception):
    """A failure that another model may not have, before anything was yielded. Never leaves this module."""

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.error = error


async def _unbroken(
    provider: ChatProvider, request: Request, curable: frozenset[ModelFault]
) -> AsyncGenerator[Event, None]:
    told = False
    try:
        async with aclosing(provider.stream(request)) as events:
            async for event in events:
                told = True
                yield event
    except ModelError as error:
        if told or error.kind not in curable:
            raise
        raise _CurableFailure(error) from error


def _charged(reply: Reply, price: Price | None) -> Reply:
    return replace(reply, usage=charged(reply.usage, price))


def chain_of(handle: str, options: Any, server_chain: Sequence[str]) -> tuple[str, ...]:
    """The fallbacks of this model: the agent's own chain if it has one, even an empty one, else the server's."""
    given = options.get(FALLBACKS_OPTION)
    wanted: Iterable[Any] = given if isinstance(given, list | tuple) else server_chain
    return tuple(dict.fromkeys(one for one in wanted if isinstance(one, str) and one != handle))[:CHAIN_MAX]


def _fitted(request: Request, provider: ChatProvider, name: str) -> Request:
    """The same request for another model: limits that are too high for it are lowered."""
    most = provider.describe(name).max_tokens
    asked = request.max_tokens
    return replace(request, model=name, max_tokens=min(asked, most) if asked and most else asked)


def _all_failed(first: ModelError, tried: Sequence[str]) -> ModelError:
    if not tried:
        return first
    message = f"{first.message} The fallback models failed too: {', '.join(tried)}."
    return ModelError(first.kind, message, detail=first.detail, hint=first.hint, retry_after_s=first.retry_after_s)
