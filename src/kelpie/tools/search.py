"""Finding tools by words: in the name, the tags, the description and what is said of the parameters.

The ranking is BM25 over the tools of one organisation, which are few enough to be read at once. It knows words and
their beginnings, not meaning.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kelpie.core.ids import OrganizationId
from kelpie.core.paging import Page
from kelpie.core.tools import Tool, ToolHit, ToolQuery, ToolSearch
from kelpie.storage import tools as rows
from kelpie.world.database import Tx

TOOLS_MAX = 5000  # how many are looked through, the newest first
_WORDS_MAX = 64
_PREFIX_MIN = 3
_NAME_WEIGHT = 3
_K1, _B = 1.2, 0.75
_WORD = re.compile(r"[^\W_]+")


def search(tx: Tx, organization: OrganizationId, wanted: ToolSearch) -> list[ToolHit]:
    """The tools that have any of the words, the best first."""
    query = ToolQuery(page=Page(limit=TOOLS_MAX, descending=True), tool_types=wanted.tool_types)
    found = rows.select(tx, organization, query)
    kept = [tool for tool in found if not wanted.tags or set(tool.tags) & set(wanted.tags)]
    words = list(dict.fromkeys(_words(wanted.words)))[:_WORDS_MAX]
    if not words:
        return [ToolHit(tool, None, 0.0) for tool in kept[: wanted.limit]] if not wanted.words.strip() else []
    scores = _scores([_document(tool) for tool in kept], words)
    ranked = sorted(zip(scores, range(len(kept)), strict=True), key=lambda pair: (-pair[0], pair[1]))
    best = [(score, kept[number]) for score, number in ranked if score > 0][: wanted.limit]
    return [ToolHit(tool, rank, score) for rank, (score, tool) in enumerate(best, 1)]


def _scores(documents: Sequence[Counter[str]], words: Sequence[str]) -> list[float]:
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 1.0
    scores = [0.0] * len(documents)
    for word in words:
        counts = [_count(document, word) for document in documents]
        having = sum(1 for count in counts if count)
        rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        for number, count in enumerate(counts):
            if count:
                weight = count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[number] / (average or 1.0)))
                scores[number] += rarity * weight
    return scores


def _count(document: Counter[str], word: str) -> float:
    """How often the word is there; a longer word that begins with it counts half."""
    exact = document[word]
    if len(word) < _PREFIX_MIN:
        return exact
    longer = sum(count for other, count in document.items() if other != word and other.startswith(word))
    return exact + longer / 2


def _document(tool: Tool) -> Counter[str]:
    counted: Counter[str] = Counter(_words(tool.name) * _NAME_WEIGHT)
    counted.update(word for tag in tool.tags for word in _words(tag))
    counted.update(_words(tool.description or ""))
    counted.update(_words(str(tool.json_schema.get("description") or "")) if not tool.description else ())
    parameters: Any = tool.json_schema.get("parameters")
    properties: Any = cast("Mapping[str, Any]", parameters).get("properties") if isinstance(parameters, Mapping) else {}
    for name, schema in cast("Mapping[str, Any]", properties if isinstance(properties, Mapping) else {}).items():
        counted.update(_words(name))
        if isinstance(schema, Mapping):
            counted.update(_words(str(cast("Mapping[str, Any]", schema).get("description") or "")))
    return counted


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
