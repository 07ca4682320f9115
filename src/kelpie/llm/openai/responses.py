"""OpenAI's provider: reasoning models through its responses protocol, the others through chat completions. A compatible
server gets the responses protocol only if the operator sets that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from kelpie.core.errors import ModelError
from kelpie.llm.catalog import known_models, thinking_defaults
from kelpie.llm.catalog.openai_traits import reasons
from kelpie.llm.openai.chat import OpenAIChat
from kelpie.llm.openai.responses_reply import Assembly
from kelpie.llm.openai.responses_request import encode_request, forget_thoughts
from kelpie.llm.provider.errors import Endpoint
from kelpie.llm.provider.interface import ModelInfo, Request
from kelpie.llm.provider.retry import RetryLimits
from kelpie.llm.wire.call_ids import made_call_id
from kelpie.llm.wire.exchange import Call
from kelpie.world.world import World

OWN_HOST = "api.openai.com"


@dataclass(slots=True)
class Account:
    """Known restrictions of the account behind the key."""

    summaries: bool = True  # true if it may have summaries of thoughts


class ResponsesCall:
    """A request as OpenAI's responses."""

    path = "responses"

    def __init__(self, request: Request, account: Account) -> None:
        self._request = request
        self._account = account
        self._body = encode_request(request, summary=account.summaries)

    def body(self) -> bytes:
        return self._body

    def assembly(self) -> Assembly:
        return Assembly(partial(made_call_id, self._request))

    def repair(self, error: ModelError) -> bool:
        """Removes what the account cannot use: unverified accounts get no summaries; thoughts of another account or
        model are unreadable."""
        said = (error.detail or "").lower()
        if "summar" in said and self._account.summaries:
            self._account.summaries = False
        elif not (("encrypted" in said or "type 'reasoning'" in said) and forget_thoughts(self._request)):
            return False
        before, self._body = self._body, encode_request(self._request, summary=self._account.summaries)
        return self._body != before


class OpenAI(OpenAIChat):
    """A provider with both protocols."""

    def __init__(self, world: World, endpoint: Endpoint, limits: RetryLimits | None = None) -> None:
        super().__init__(world, endpoint, limits)
        own = urlsplit(endpoint.base_url).hostname == OWN_HOST
        self._responses = own if endpoint.responses is None else endpoint.responses
        self._account = Account()

    def _call(self, request: Request) -> Call:
        name = request.model
        if self._responses and (reasons(name) or not known_models.chats(name)):
            return ResponsesCall(request, self._account)
        return super()._call(request)

    def _offers(self, name: str) -> bool:
        return known_models.chats(name, responses=self._responses)

    def _info(self, name: str, entry: Mapping[str, Any]) -> ModelInfo:
        return replace(super()._info(name, entry), settings=thinking_defaults.of_openai(name))
