"""Full-text search over messages and passages. All that differs between the databases' text indexes is in this file.

An item belongs to a scope (an agent's messages, an archive's passages). The scope is a condition in SQL, never a word
in the text, and a query is only ever quoted words: what a caller types neither breaks the syntax nor leaves its scope.
The functions run inside the caller's transaction, so an item and its index entry appear and vanish together.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Integer,
    Text,
    bindparam,
    column,
    delete,
    literal_column,
    select,
)
from sqlalchemy import table as plain_table
from sqlalchemy import text as plain_sql
from sqlalchemy.dialects import sqlite

from kelpie.core.errors import InvariantBroken
from kelpie.search.tables import search_items

Kind: TypeAlias = Literal["message", "passage", "tool", "fact"]

QUERY_TERMS_MAX = 32
QUERY_CHARS_MAX = 2000
LARGE = 10_000  # items of a scope from which on the rarer words of a query are looked for first
ENOUGH, SCORED_MAX = 200, 5_000  # items with the rarer words: at least, and then not more than
COUNTED_MAX = 20_000  # items that hold a word are counted so far

ITEM_ID: ColumnElement[str] = literal_column("search_items.item_id", Text)  # of the match a condition is about

# Every ASCII character that is neither letter nor digit parts words; what lies beyond ASCII is left to the tokenizer.
_BETWEEN_WORDS = re.compile(r"[\x00-/:-@\[-`{-\x7f]+")


@dataclass(frozen=True, slots=True)
class Only:
    """What a match must meet besides its words: a condition on the row of ITEM_ID, and its parameters.

    The condition is part of a prepared statement: build it once, at import, and not for every search.
    """

    condition: ColumnElement[bool]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class _Statements:
    """What a dialect must bring."""

    number_item: Executable  # kind, scope, item_id
    put_text: Executable  # kind, item_id, text
    drop_text: Executable  # kind, item_id
    drop_texts: Executable  # kind, scope
    drop_numbers: Executable  # numbers
    # (scoped, condition) -> kind, scope, any_term, all_terms, limit, offset -> item_id, score
    search: Callable[[bool, ColumnElement[bool] | None], Executable]
    holding: Executable  # any_term -> how many items hold it, whoever's they are


def index(tx: Connection, kind: Kind, scope: str, item_id: str, text: str) -> None:
    """Makes the item findable by its text; a text it had before is replaced."""
    index_many(tx, kind, scope, {item_id: text})


def index_many(tx: Connection, kind: Kind, scope: str, texts: Mapping[str, str]) -> None:
    """Makes items findable by their texts, in two statements however many there are."""
    if not texts:
        return
    statements = _statements(tx)
    tx.execute(statements.number_item, [{"kind": kind, "scope": scope, "item_id": item_id} for item_id in texts])
    tx.execute(
        statements.put_text,
        [{"the_kind": kind, "the_item": item_id, "text": _storable(text)} for item_id, text in texts.items()],
    )


def remove(tx: Connection, kind: Kind, item_id: str) -> None:
    """Takes the item out of the index, if it is in it."""
    remove_many(tx, kind, (item_id,))


def remove_many(tx: Connection, kind: Kind, item_ids: Sequence[str]) -> None:
    """Takes those of the items that are in the index out of it."""
    if not item_ids:
        return
    wanted = [{"the_kind": kind, "the_item": item_id} for item_id in item_ids]
    tx.execute(_statements(tx).drop_text, wanted)
    tx.execute(_DROP_ITEM, wanted)


def remove_scope(tx: Connection, kind: Kind, scope: str) -> None:
    """Takes every item of the scope out of the index."""
    wanted = {"the_kind": kind, "the_scope": scope}
    tx.execute(_statements(tx).drop_texts, wanted)
    tx.execute(_DROP_ITEMS, wanted)


def remove_numbers(tx: Connection, numbers: Sequence[int]) -> None:
    """Takes the items with these numbers out of the index."""
    tx.execute(_statements(tx).drop_numbers, {"numbers": list(numbers)})
    tx.execute(_DROP_NUMBERED, {"numbers": list(numbers)})


def search(
    tx: Connection,
    kind: Kind,
    scope: str | None,
    query: str,
    limit: int,
    offset: int = 0,
    only: Only | None = None,
    *,
    every: bool = False,
) -> list[tuple[str, float]]:
    """The items of the scope that hold a word of the query, with their BM25 score (more is better).

    Those that hold every word come first, within that the best score. A query without words finds nothing; in a large
    scope, the common words of a query count only when its rarer ones find too little. Without a scope, `only` must say
    whose items may be found. With `every`, only those that hold all words are found.
    """
    if scope is None and only is None:
        raise InvariantBroken("A search must say among whose items.")
    terms = _terms(query)
    if not terms:
        return []
    if every:
        terms = [f"({' AND '.join(terms)})"]
    wanted: dict[str, Any] = {
        "the_kind": kind,
        **({} if scope is None else {"the_scope": scope}),
        **(only.parameters if only else {}),
        "all_terms": " AND ".join(terms),
        "row_limit": limit,
        "row_offset": offset,
    }
    statement = _statements(tx).search(scope is not None, only.condition if only else None)
    rarer = _rarer(tx, kind, scope, terms)
    found = tx.execute(statement, {**wanted, "any_term": " OR ".join(rarer)}).all()
    if len(found) < limit and len(rarer) < len(terms):
        found = tx.execute(statement, {**wanted, "any_term": " OR ".join(terms)}).all()
    return [(row.item_id, row.score) for row in found]


def _terms(query: str) -> list[str]:
    """The words of a query, each once and quoted, so that none of them is an operator."""
    words = _BETWEEN_WORDS.split(_storable(query[:QUERY_CHARS_MAX]).lower())
    return [f'"{word}"' for word in dict.fromkeys(words) if word][:QUERY_TERMS_MAX]


def _rarer(tx: Connection, kind: Kind, scope: str | None, terms: list[str]) -> tuple[str, ...]:
    """Of a large scope, the rarer words of a query, as many as may be scored at once: a word that is everywhere tells
    next to nothing, and to score all that hold it takes a tenth of a second."""
    of_scope = {"the_kind": kind, "the_scope": scope}
    if scope is None or len(terms) == 1 or tx.execute(_IS_LARGE, of_scope).first() is None:
        return tuple(terms)
    holding = _statements(tx).holding
    counts = sorted((tx.execute(holding, {"any_term": each}).scalar_one(), each) for each in terms)
    total, rarer = 0, list[str]()
    for count, term in counts:
        if total >= ENOUGH and total + count > SCORED_MAX:
            break
        total += count
        rarer.append(term)
    return tuple(rarer)


def _storable(text: str) -> str:
    """Half of a surrogate pair has no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _statements(tx: Connection) -> _Statements:
    try:
        return _BY_DIALECT[tx.dialect.name]
    except KeyError:
        raise InvariantBroken(f"Full-text search knows no database of the kind {tx.dialect.name}.") from None


_of_item = (search_items.c.kind == bindparam("the_kind")) & (search_items.c.item_id == bindparam("the_item"))
_of_scope = (search_items.c.kind == bindparam("the_kind")) & (search_items.c.scope == bindparam("the_scope"))
_IS_LARGE = select(search_items.c.id).where(_of_scope).limit(1).offset(LARGE)
_DROP_ITEM = delete(search_items).where(_of_item)
_DROP_ITEMS = delete(search_items).where(_of_scope)
_DROP_NUMBERED = delete(search_items).where(search_items.c.id.in_(bindparam("numbers", expanding=True)))


# CROSS JOIN fixes the order: asking the text index per item of the scope took 451 s, once for all 0.1 s (150,000 rows).
# Ordering by a bare bm25() would make FTS5 rank everyone's matches and not only those of the scope.
_SQLITE_MATCHES = (
    select(ITEM_ID.label("item_id"), literal_column("-bm25(search_text)").label("score"))
    .select_from(plain_sql("search_text CROSS JOIN search_items ON search_items.id = search_text.rowid"))
    .where(plain_sql("search_text MATCH :any_term AND search_items.kind = :the_kind"))
    .order_by(
        plain_sql(
            "search_text.rowid IN (SELECT rowid FROM search_text WHERE search_text MATCH :all_terms) DESC, "
            "score DESC, search_text.rowid"
        )
    )
    .limit(bindparam("row_limit", type_=Integer))
    .offset(bindparam("row_offset", type_=Integer))
)


_SQLITE_HOLDING = plain_sql(
    f"SELECT count(*) FROM (SELECT 1 FROM search_text WHERE search_text MATCH :any_term LIMIT {COUNTED_MAX})"
)


@lru_cache(maxsize=64)
def _sqlite_search(scoped: bool, condition: ColumnElement[bool] | None) -> Executable:
    statement = _SQLITE_MATCHES
    if scoped:
        statement = statement.where(plain_sql("search_items.scope = :the_scope"))
    return statement if condition is None else statement.where(condition)


def _sqlite_statements() -> _Statements:
    """FTS5: a virtual table whose rowid is the item's number."""
    fts = plain_table("search_text", column("rowid", BigInteger), column("text", Text))
    number_item = sqlite.insert(search_items)
    return _Statements(
        number_item=number_item.on_conflict_do_update(
            index_elements=["kind", "item_id"], set_={"scope": number_item.excluded.scope}
        ),
        put_text=sqlite.insert(fts)
        .values(rowid=select(search_items.c.id).where(_of_item).scalar_subquery(), text=bindparam("text"))
        .prefix_with("OR REPLACE"),
        drop_text=delete(fts).where(fts.c.rowid.in_(select(search_items.c.id).where(_of_item))),
        drop_texts=delete(fts).where(fts.c.rowid.in_(select(search_items.c.id).where(_of_scope))),
        drop_numbers=delete(fts).where(fts.c.rowid.in_(bindparam("numbers", expanding=True))),
        search=_sqlite_search,
        holding=_SQLITE_HOLDING,
    )


_BY_DIALECT = {"sqlite": _sqlite_statements()}
