"""Embedding backlog: computes missing vectors, of texts that were stored while no model answered, of every message, and
of a scope whose model was changed.

A scope is searched by its old vectors until all of the new ones are there. Scopes take turns, as far as the newest
items without a vector reach. The work is done in small pieces with pauses between them, because it must not slow down
turns; what is left to do is in the database and not in memory.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kelpie.actors.periodic import PeriodicWorker
from kelpie.core.errors import KelpieError
from kelpie.memory.embeddings import Embeddings
from kelpie.observe import logs
from kelpie.search import embedding_coverage, vector_rows
from kelpie.search.text.fulltext import Kind
from kelpie.search.vector_rows import Vector
from kelpie.storage.archives import embedding_models, passages
from kelpie.storage.conversations import messages
from kelpie.storage.files import passages as file_passages
from kelpie.storage.memory import facts
from kelpie.storage.tools import search as tool_search
from kelpie.world.database import Tx
from kelpie.world.long_writes import write_piece
from kelpie.world.world import World

# Texts that are embedded in one go, of whichever scopes, and how long they are together. Their vectors are written in
# one transaction, behind which turns wait: with four times as many their 99th percentile was half as long again.
PIECE, PIECE_CHARS = 8, 20_000
PAGE, PAGES_MAX = 500, 20  # of items that are looked through: their scopes take turns, and a model must work
SCOPES_MAX = 100
DROPPED = 200  # vectors that are deleted in one transaction
LOOK_EVERY_S = 5.0
START_S = 5.0  # after the server: a start is busy enough, and one that soon ends again need not load a model
START_BUSY_S = 30.0  # more, while agents are at work from the start
RETRY_S = 60.0  # after a model that failed
REST = 4.0  # pauses are so many times as long as the work
REST_BUSY = 20.0  # while agents are at work
_KINDS_BUT_TOOLS: tuple[Kind, ...] = ("passage", "file_passage", "fact", "message")
_KINDS: tuple[Kind, ...] = (*_KINDS_BUT_TOOLS, "tool")
_NS = 1e9
_LAST = 2**62

_log = logs.get("memory")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Items to be embedded by one model, and what they say; `scope` is set when it is changing to that model."""

    kind: Kind
    model: str
    items: list[str]
    texts: dict[str, str]
    also: str | None = None  # the model that their scope is searched by meanwhile
    scope: str | None = None
    organization: str = ""  # whose own provider one of the models is of
    last: int | None = None  # the number of the last of them; None when none is left


class EmbeddingBacklog:
    """The background work on vectors of one server."""

    def __init__(self, world: World, embeddings: Embeddings, busy: Callable[[], bool] = lambda: False) -> None:
        """`busy` returns true while turns run."""
        self._world = world
        self._embeddings = embeddings
        self._busy = busy
        self._reached: dict[tuple[Kind, str, str], int] = {}  # how far a scope has come on its way to a model
        self._failed: dict[tuple[str, str], int] = {}  # models that failed, and when they are asked again
        self._worker = PeriodicWorker(self._round, failed=_report, retry_s=RETRY_S)

    async def run(self) -> None:
        """Never returns."""
        await asyncio.sleep(START_S)
        for _ in range(int(START_BUSY_S)):
            if not self._busy():
                break
            await asyncio.sleep(1.0)
        await self._worker.run()

    async def _round(self) -> float:
        started = self._world.clock.monotonic_ns()
        if not await self.work():
            return LOOK_EVERY_S
        rest = REST_BUSY if self._busy() else REST
        return rest * (self._world.clock.monotonic_ns() - started) / _NS

    async def work(self) -> bool:
        """Does one piece of what is to be done; False when there is nothing. Raises StorageError."""
        default = await self._embeddings.default()
        # Every server has tools: for their sake alone no model is loaded.
        kinds = _KINDS if self._embeddings.asked else _KINDS_BUT_TOOLS
        piece = await self._world.database.read(lambda tx: self._next(tx, kinds, default))
        if piece is None:
            return False
        await self._embed(piece)
        return True

    def _next(self, tx: Tx, kinds: Sequence[Kind], default: str | None) -> _Piece | None:
        """The next items. Those without any vector go first: vector search cannot find them at all."""
        pieces = (self._bare(tx, kind, default) or self._changing(tx, kind, default) for kind in kinds)
        return next((piece for piece in pieces if piece is not None), None)

    def _bare(self, tx: Tx, kind: Kind, default: str | None) -> _Piece | None:
        before = _LAST
        for _ in range(PAGES_MAX):
            found = embedding_coverage.unembedded(tx, kind, before, PAGE)
            if not found:
                return None
            scopes = list(dict.fromkeys(scope for _, scope, _ in found))
            meant = embedding_models.selected_for(tx, kind, scopes, default)
            used = vector_rows.models_of(tx, kind, scopes)
            owners = self._owners(tx, kind, scopes, {*meant.values(), *used.values()})
            for scope in scopes:
                model, owner = meant.get(scope), owners.get(scope, "")
                if model is not None and self._works(model, owner):
                    same = (model, used.get(scope), owner)
                    alike = {each for each in scopes if (meant.get(each), used.get(each), owners.get(each, "")) == same}
                    some = _in_turns([(of, item) for _, of, item in found if of in alike])[:PIECE]
                    return replace(_piece(tx, kind, model, some, used.get(scope)), organization=owner)
            if len(found) < PAGE:
                return None
            before = found[-1][0]
        return None

    def _changing(self, tx: Tx, kind: Kind, default: str | None) -> _Piece | None:
        changing = embedding_models.changing(tx, kind, default, SCOPES_MAX)
        owners = self._owners(tx, kind, list(changing), changing.values())
        for scope, model in changing.items():
            owner = owners.get(scope, "")
            if self._works(model, owner):
                after = self._reached.get((kind, scope, model), 0)
                lacking = embedding_coverage.without(tx, kind, scope, model, after, PIECE)
                piece = _piece(tx, kind, model, [item for _, item in lacking])
                numbers = {item: number for number, item in lacking}
                last = numbers[piece.items[-1]] if lacking else None
                return replace(piece, scope=scope, organization=owner, last=last)
        return None

    def _owners(self, tx: Tx, kind: Kind, scopes: Sequence[str], models: Iterable[str]) -> dict[str, str]:
        """The organizations of scopes, if one of the models may be of an organization's own provider: two of them may
        have given their providers the same name."""
        if all(self._embeddings.is_shared(model) for model in models):
            return {}
        return embedding_models.owners(tx, kind, scopes)

    def _works(self, model: str, organization: str) -> bool:
        """True if a model has not failed just now."""
        return self._failed.get((organization, model), 0) <= self._world.clock.monotonic_ns()

    async def _embed(self, piece: _Piece) -> None:
        if piece.scope is not None and piece.last is None:
            await self._change_over(piece.kind, piece.scope, piece.model)
            return
        meant = await self._embeddings.of_backlog(
            (piece.also, piece.model), list(piece.texts.values()), piece.organization
        )
        made = {item: meant.vectors.get(text, ()) for item, text in piece.texts.items()}
        if meant.lacking is not None and any(_lacks(made[item], piece.model) for item in made):
            now = self._world.clock.monotonic_ns()
            self._failed = {key: until for key, until in self._failed.items() if until > now}
            self._failed[piece.organization, piece.model] = now + int(RETRY_S * _NS)
            return

        def write(tx: Tx) -> None:
            vector_rows.put_many(tx, piece.kind, made)
            embedding_coverage.mark(tx, piece.kind, [item for item in piece.items if not made.get(item)], piece.model)

        await self._world.database.transact(write)
        if piece.scope is not None and piece.last is not None:
            self._reached[piece.kind, piece.scope, piece.model] = piece.last

    async def _change_over(self, kind: Kind, scope: str, model: str) -> None:
        """Every item has its new vector: the scope is searched by them, and the old ones go."""
        self._reached.pop((kind, scope, model), None)

        def write(tx: Tx) -> str | None:
            before = vector_rows.models_of(tx, kind, (scope,)).get(scope)
            if before is None or embedding_coverage.without(tx, kind, scope, model, 0, 1):
                return None  # it is gone, or something was added meanwhile
            vector_rows.search_by(tx, kind, scope, model)
            return before

        before = await self._world.database.transact(write)
        if before is None:
            return
        while not await write_piece(
            self._world.database, lambda tx: vector_rows.remove_others(tx, kind, scope, model, DROPPED)
        ):
            pass
        _log.info(
            "embedding_model_changed",
            "All vectors are from the new embedding model; search uses it now",
            kind=kind,
            scope=scope,
            model=model,
            before=before,
        )


def _piece(tx: Tx, kind: Kind, model: str, ids: Sequence[str], also: str | None = None) -> _Piece:
    """The first items, as many as are not too long together; at least one."""
    texts, some, chars = _texts(tx, kind, ids), list[str](), 0
    for item in ids:
        chars += len(texts.get(item, ""))
        if some and chars > PIECE_CHARS:
            break
        some.append(item)
    return _Piece(kind, model, some, {item: texts[item] for item in some if item in texts}, also)


def _in_turns(items: Sequence[tuple[str, str]]) -> list[str]:
    """The items of several scopes, one of each in turn: an agent with many texts does not keep others waiting."""
    places: Counter[str] = Counter()
    ranked: list[tuple[int, str]] = []
    for scope, item in items:
        places[scope] += 1
        ranked.append((places[scope], item))
    return [item for _, item in sorted(ranked, key=lambda each: each[0])]


def _report(error: KelpieError) -> None:
    _log.warning("vector_update_failed", "Missing vectors could not be computed; trying again later", error=str(error))


def _lacks(made: Sequence[Vector], model: str) -> bool:
    return all(vector.model != model for vector in made)


def _texts(tx: Tx, kind: Kind, ids: Sequence[str]) -> dict[str, str]:
    if kind == "passage":
        return passages.texts(tx, ids)
    if kind == "file_passage":
        return file_passages.texts(tx, ids)
    if kind == "fact":
        return facts.texts(tx, ids)
    if kind == "tool":
        return tool_search.texts(tx, ids)
    return {message.id: message.said for message in messages.get_many(tx, ids)}
