"""Chat provider whose calls are held to the operator's limits.

Each attempt passes them anew: a call that pauses before a retry holds no reservation, and a retry is a request like any
other. So the inner provider must try only once, and this class retries.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from random import Random

from kelpie.core.conversations.messages import Message, Usage
from kelpie.core.errors import ConfigurationError, ModelError, ModelFault, Overloaded
from kelpie.core.models.image_limits import TOKENS_PER_IMAGE
from kelpie.core.models.prices import Price
from kelpie.fairness.processor_time import current_usage
from kelpie.llm.catalog.price_list import Prices
from kelpie.llm.limits.limiter import Cost, Limiter
from kelpie.llm.provider.interface import ChatProvider, Event, ModelInfo, PreparedMessage, Reply, Request
from kelpie.llm.provider.retry import RetryLimits, RetryPolicy, retried

CHARS_PER_TOKEN = 4
LIMITS_VARIABLE = "KELPIE_PROVIDER_LIMITS"
PRICES_VARIABLE = "KELPIE_MODEL_PRICES"


class LimitedProvider:
    """The chat models of `inner`, which must try only once, within limits. Listings and embeddings are not limited.

    Raises ConfigurationError without a price.
    """

    def __init__(
        self,
        inner: ChatProvider,
        limiter: Limiter,
        limits: RetryLimits,
        prices: Prices,
        random: Random,
        *,
        own: bool = False,
    ) -> None:
        """`own` is a provider that an organization added: without a price its calls are refused, one by one."""
        self.name = inner.name
        self._inner = inner
        self.limiter = limiter
        self._limits = limits
        self._prices = prices
        self._random = random
        if not own and limiter.bounds.dollars and not prices.knows(self.name):
            raise ConfigurationError(
                LIMITS_VARIABLE,
                f"the dollars of {self.name} cannot be limited, because the prices of its models are unknown; "
                f"set {PRICES_VARIABLE}, such as '{self.name}/*=2.50/10.00'",
            )

    def describe(self, name: str) -> ModelInfo:
        return self._inner.describe(name)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Calls the model when the limits allow it. Raises ModelError; of kind rate_limit when they did not in time."""
        attempt = partial(self._attempt, request, self._price(request.model))
        try:
            async with aclosing(retried(attempt, self._limits, self._random)) as events:
                async for event in events:
                    yield event
        except Overloaded as error:
            raise ModelError(
                ModelFault.rate_limit,
                str(error),
                hint=f"Wait and try again, or raise the limit in {LIMITS_VARIABLE}.",
                retry_after_s=error.retry_after_s,
            ) from error

    async def _attempt(
        self, request: Request, price: Price | None, patience: RetryPolicy
    ) -> AsyncGenerator[Event, None]:
        expected = self._expected(request, price)
        told = False
        if (usage := current_usage()) is not None:
            await usage.pace()
        async with self.limiter.reserve(request.consumer, expected) as reservation:
            try:
                async with aclosing(self._inner.stream(request)) as events:
                    while True:
                        try:
                            event = await patience.wait(anext(events), float("inf"), f"{self.name} did not finish")
                        except StopAsyncIteration:
                            return
                        told = True
                        if isinstance(event, Reply):
                            reservation.settle(_cost(event.usage, price, expected))
                        yield event
            finally:
                if not told:
                    reservation.settle(Cost())  # refused or never reached: nothing was used

    def _price(self, model: str) -> Price | None:
        price = self._prices.of(f"{self.name}/{model}")
        if price is None and self.limiter.bounds.dollars:
            raise ModelError(
                ModelFault.bad_request,
                f"The price of {self.name}/{model} is unknown, so the dollar limit of {self.name} cannot be enforced.",
                hint=f"Add '{self.name}/{model}=input/output' (dollars per million tokens) to {PRICES_VARIABLE}.",
            )
        return price

    def _expected(self, request: Request, price: Price | None) -> Cost:
        """The least that the prompt will use; the length of the reply is unknown."""
        bounds = self.limiter.bounds
        if not (bounds.tokens or bounds.dollars):
            return Cost()
        chars = len(request.system) + sum(_chars(prepared) for prepared in request.messages)
        tokens = chars // CHARS_PER_TOKEN + 1
        return Cost(tokens, round(tokens * price.input) if price else 0)


def _cost(usage: Usage, price: Price | None, expected: Cost) -> Cost:
    """The real cost; a server without counts is assumed to have used the expected amount."""
    if not usage.total_tokens:
        return expected
    return Cost(usage.total_tokens, price.micros(usage) if price else 0)


def _chars(prepared: PreparedMessage) -> int:
    images = prepared.pictures * TOKENS_PER_IMAGE * CHARS_PER_TOKEN
    for encoded in prepared.wire.values():
        return len(encoded) - prepared.picture_chars + images
    return _length(prepared.message) + images


def _length(message: Message) -> int:
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return len(message.text) + calls + sum(len(given.text) for given in message.tool_returns)
