"""Embeddings of texts that are stored or searched for: vectors by model, or the reason why there are none.

A model that fails, is missing or is busy never keeps a text from being stored or found: words alone count then, and the
caller gets the reason. `embedding_backlog` adds the missing vectors later. Organizations, then their agents, take turns
for each model server, and many texts are embedded in pieces, so that no caller waits for another's thousand texts.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kelpie.core.access.consumers import Consumer
from kelpie.core.errors import CallerError, ModelError, ModelFault, StorageError
from kelpie.core.settings.settings import Settings
from kelpie.fairness.fair_slots import FairSlots, SlotLimits
from kelpie.llm.routing.models import OWN, Models
from kelpie.memory.search_slots import SearchSlots
from kelpie.observe import logs
from kelpie.search.items import NearestItems
from kelpie.search.vector_rows import Vector
from kelpie.world.embedding.pieces import BY_A_SERVER, ON_THIS_MACHINE, pieces
from kelpie.world.lazy_imports import lazily

with lazily:
    from kelpie.search import vector_search as _vector_search  # it needs numpy

STORE_S = 30.0  # how long storing waits for vectors; a search that finds nothing better waits no longer than LOOK_S
LOOK_S = 10.0
BACKLOG_S = 120.0  # no caller waits: it gives way to everything else, so it may take long
# The model on this machine has one thread for those who wait; another server takes several requests at once.
OWN_LIMITS = SlotLimits("embedding_queue_full", "embedding slot", 1, waiting_max=256, wait_s=STORE_S)
SERVER_LIMITS = SlotLimits("embedding_queue_full", "embedding slot", 8, waiting_max=256, wait_s=STORE_S)
NO_MODEL = "no embedding model is configured"
NOT_YET = "nothing has been embedded yet"

_log = logs.get("memory")


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """Vectors by text, in the space of each model that could be asked, and why others could not."""

    vectors: dict[str, tuple[Vector, ...]] = field(default_factory=dict[str, tuple[Vector, ...]])
    lacking: str | None = None

    def by_model(self, text: str) -> dict[str, Vector]:
        return {vector.model: vector for vector in self.vectors.get(text, ())}


class Embeddings:
    """The embedding models of this server, as memory uses them."""

    def __init__(self, models: Models, settings: Settings, finder: NearestItems | None = None) -> None:
        self._models = models
        self._given = settings.default_embedding
        self._finder = finder
        self.slots = SearchSlots()
        self._turns: dict[str, FairSlots] = {}  # by provider, or by organization for its own providers
        self.asked = False  # true once anything was to be embedded since the server started
        self._logged: str | None = None  # the last failure in the log

    @property
    def finder(self) -> NearestItems:
        """Vector search; loaded when it is first used."""
        if self._finder is None:
            self._finder = _vector_search.Nearest()
        assert self._finder is not None
        return self._finder

    def failed(self, error: StorageError) -> str:
        """The reason why a search does without vectors although there are some: the vector search failed."""
        _log.error("vector_search_failed", "Vector search failed; using full-text search only", error=str(error))
        return f"the search by meaning failed: {error}".rstrip(".")

    async def default(self) -> str | None:
        """The default model: the one in the settings, else the one on this machine, if there is one."""
        return self._given or await self._models.own_embedding()

    async def why_not(self) -> str | None:
        """Reason why there is no default model, and the remedy; None when there is one."""
        if await self.default() is not None:
            return None
        why = self._models.why_no_own_embedding()
        lacking = NO_MODEL if why is None else f"{NO_MODEL}. {why.rstrip('.')}"
        self._log_trouble(lacking)
        return lacking

    async def of_stored(self, handles: Iterable[str | None], texts: Sequence[str], consumer: Consumer) -> QueryVectors:
        """The vectors of texts that are about to be stored."""
        return await self._of(handles, texts, STORE_S, consumer)

    async def of_backlog(
        self, handles: Iterable[str | None], texts: Sequence[str], organization: str = ""
    ) -> QueryVectors:
        """The vectors of texts that were stored before; no caller waits for them. The organization is needed for
        models of its own providers."""
        return await self._of(handles, texts, BACKLOG_S, Consumer(organization), waits=False)

    async def of_texts(self, handle: str, texts: Sequence[str], consumer: Consumer) -> list[bytes]:
        """One vector per text, as little-endian 32-bit floats, for a caller who wants the vectors themselves.

        Raises InvalidInput, NotFound, ModelError, StorageError, and Overloaded when too many wait.
        """
        try:
            async with asyncio.timeout(BACKLOG_S):
                return await self._in_turn(handle, texts, consumer, waits=True)
        except TimeoutError:
            text = f"{handle} did not answer within {BACKLOG_S:g} s; send fewer texts at once"
            raise ModelError(ModelFault.timeout, text) from None

    def is_shared(self, handle: str) -> bool:
        """True if a model can only be of a provider that all organizations share."""
        return self._models.is_shared(handle)

    async def of_query(self, handles: Iterable[str | None], text: str, consumer: Consumer) -> QueryVectors:
        """The vectors of a query."""
        return await self._of(handles, (text,), LOOK_S, consumer)

    async def _of(
        self,
        handles: Iterable[str | None],
        texts: Sequence[str],
        seconds: float,
        consumer: Consumer,
        *,
        waits: bool = True,
    ) -> QueryVectors:
        """`waits` is false if no caller waits for the vectors."""
        wanted = [handle for handle in dict.fromkeys(handles) if handle is not None]
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        self.asked = self.asked or bool(distinct)
        if not wanted:
            return QueryVectors(lacking=await self.why_not() or NOT_YET)
        asked = (self._by_one(handle, distinct, seconds, consumer, waits) for handle in (wanted if distinct else ()))
        found: dict[str, tuple[Vector, ...]] = {}
        lacking: str | None = None
        for vectors in await asyncio.gather(*asked):  # at once, so that one that hangs costs no more than its time
            if isinstance(vectors, str):
                lacking = vectors
                continue
            for text, vector in zip(distinct, vectors, strict=True):
                found[text] = (*found.get(text, ()), vector)
        self._log_trouble(lacking)
        return QueryVectors(found, lacking)

    async def _by_one(
        self, handle: str, texts: Sequence[str], seconds: float, consumer: Consumer, waits: bool
    ) -> list[Vector] | str:
        """The vectors of one model, or why there are none."""
        try:
            async with asyncio.timeout(seconds):
                values = await self._in_turn(handle, texts, consumer, waits)
            return [_vector_search.vector(handle, each) for each in values]
        except TimeoutError:
            return f"{handle} did not answer within {seconds:g} s"
        except (ModelError, CallerError, ValueError, StorageError) as error:
            return f"{handle}: {error}".rstrip(".")  # it becomes a part of a sentence

    async def _in_turn(self, handle: str, texts: Sequence[str], consumer: Consumer, waits: bool) -> list[bytes]:
        """One vector per text. Raises ModelError, StorageError, and CallerError, also when too many wait."""
        models = self._models.of(consumer.organization)
        if not waits:
            return await models.embed(handle, texts, patient=True)
        provider = handle.partition("/")[0]
        limits, size = (OWN_LIMITS, ON_THIS_MACHINE) if provider == OWN else (SERVER_LIMITS, BY_A_SERVER)
        # As many as there are shared providers and organizations: a handle was resolved when it was stored.
        turns = provider if self.is_shared(handle) else consumer.organization
        if turns not in self._turns:
            self._turns[turns] = FairSlots(limits)
        values: list[bytes] = []
        for piece in pieces(texts, size):
            async with self._turns[turns].slot(consumer):
                values += await models.embed(handle, piece)
        return values

    def _log_trouble(self, lacking: str | None) -> None:
        """Logs each failure once, because every search and every message would repeat it."""
        if lacking and lacking != self._logged:
            _log.warning("embedding_failed", "Texts could not be embedded; using full-text search only", why=lacking)
        self._logged = lacking
