"""The chain of models: when one fails in a way that another can cure, the next is asked in its place.

Only before anything was told: half an answer of one model and half of another would be no answer. The reply carries the
handle of the model that gave it, unless it is the agent's own.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from kelpie.core.conversations.messages import Usage
from kelpie.core.errors import CallerError, ModelError, ModelFault
from kelpie.llm.provider.interface import ChatProvider, Event, Reply, Request
from kelpie.observe import logs

FALLBACKS_OPTION = "fallbacks"  # among an agent's model settings: its own chain, instead of the server's
CHAIN_MAX = 8

# Not what is wrong with the request itself: another model would refuse it too, or hide the mistake.
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

_ALL = frozenset(ModelFault)  # of one that stands in, nobody asked for this very model

_log = logs.get("llm")

Find = Callable[[str], tuple[ChatProvider, str]]
Charge = Callable[[str, Usage], Usage]
Fit = Callable[[str, Request], Request]


class FallbackChain:
    """A model, and those that stand in for it. `find` gives the provider of a handle; it raises CallerError.

    `fit` takes out of a request what a model cannot be asked. Every reply carries what it cost, by the price of the
    model that gave it: `charge` tells that.
    """

    def __init__(self, find: Find, handle: str, server_chain: Sequence[str], fit: Fit, charge: Charge) -> None:
        self._find = find
        self._handle = handle
        self._server_chain = server_chain
        self._fit = fit
        self._charge = charge
        self._own = find(handle)[0]

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Asks the model, then those of the chain. Raises the ModelError of the first when all fail."""
        try:
            async with aclosing(_unbroken(self._own, self._fit(self._handle, request), CURABLE)) as events:
                async for event in events:
                    yield self._charged(event, self._handle) if isinstance(event, Reply) else event
            return
        except _Curable as failure:
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
                fitted = self._fit(handle, _fitted(request, provider, name))
                async with aclosing(_unbroken(provider, fitted, _ALL)) as events:
                    async for event in events:
                        if isinstance(event, Reply):
                            event = replace(self._charged(event, handle), answered_by=handle)
                        yield event
                return
            except _Curable as failure:
                last = failure.error
            except CallerError as error:
                last = ModelError(ModelFault.bad_request, str(error))
        raise _all_failed(first, tried)

    def _charged(self, reply: Reply, handle: str) -> Reply:
        return replace(reply, usage=self._charge(handle, reply.usage))


class _Curable(Exception):
    """A failure that another model may cure, before anything was told. Never leaves this module."""

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
        raise _Curable(error) from error


def chain_of(handle: str, options: Any, server_chain: Sequence[str]) -> tuple[str, ...]:
    """The models to ask after this one: the agent's own chain if it has one, even an empty one, else the server's."""
    given = options.get(FALLBACKS_OPTION)
    wanted: Iterable[Any] = given if isinstance(given, list | tuple) else server_chain
    return tuple(dict.fromkeys(one for one in wanted if isinstance(one, str) and one != handle))[:CHAIN_MAX]


def _fitted(request: Request, provider: ChatProvider, name: str) -> Request:
    """The same request for another model: what is too long for it is asked for shorter."""
    most = provider.describe(name).max_tokens
    asked = request.max_tokens
    return replace(request, model=name, max_tokens=min(asked, most) if asked and most else asked)


def _all_failed(first: ModelError, tried: Sequence[str]) -> ModelError:
    if not tried:
        return first
    message = f"{first.message} The fallback models failed too: {', '.join(tried)}."
    return ModelError(first.kind, message, detail=first.detail, hint=first.hint, retry_after_s=first.retry_after_s)
