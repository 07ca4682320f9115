"""Consistency check of the search index: a row, its entry, its text and its vectors, none without the others.

They are written in one transaction, so any finding is damage or a bug. It reads whole tables and changes nothing; the
SQL is written out, so that it does not inherit a mistake of the code it checks. SQLite only.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

from kelpie.search.text.tokenizer import packed

Query = Callable[[str], list[tuple[Any, ...]]]

_KNOWN = "(i.kind, i.scope) NOT IN (SELECT kind, scope FROM search_removed)"
# The rows of a deleted agent or archive are deleted in pieces; those of an archive after their search entries.
_KEPT = "agent_id NOT IN (SELECT agent_id FROM removed_agents)"
_OF_KEPT = "NOT IN (SELECT id FROM archives WHERE removed)"
_SPOKEN = f"role IN ('user', 'summary') AND {_KEPT} AND coalesce(json_extract(content, '$[0].text'), '') <> ''"

WRONGS: dict[str, str] = {
    "a passage without a search entry": f"""
        SELECT id FROM passages WHERE archive_id {_OF_KEPT}
        AND id NOT IN (SELECT item_id FROM search_items WHERE kind = 'passage')""",
    "a message without a search entry": f"""
        SELECT id FROM messages WHERE {_SPOKEN}
        AND id NOT IN (SELECT item_id FROM search_items WHERE kind = 'message')""",
    "a search entry without its passage": """
        SELECT item_id FROM search_items WHERE kind = 'passage' AND item_id NOT IN (SELECT id FROM passages)""",
    "a search entry without its message": f"""
        SELECT item_id FROM search_items AS i
        WHERE kind = 'message' AND {_KNOWN} AND item_id NOT IN (SELECT id FROM messages)""",
    **{
        f"a {kind} without a search entry": f"""
        SELECT id FROM {table} WHERE {kept} AND id NOT IN (SELECT item_id FROM search_items WHERE kind = '{kind}')"""
        for kind, table, kept in (("fact", "facts", _KEPT), ("tool", "tools", "true"))
    },
    **{
        f"a search entry without its {kind}": f"""
        SELECT item_id FROM search_items AS i
        WHERE kind = '{kind}' AND {_KNOWN} AND item_id NOT IN (SELECT id FROM {table})"""
        for kind, table in (("fact", "facts"), ("tool", "tools"))
    },
    "a tool's entry in another organisation": """
        SELECT i.item_id FROM search_items AS i JOIN tools AS t ON t.id = i.item_id
        WHERE i.kind = 'tool' AND i.scope <> t.organization_id""",
    "a tool whose tags are not those it is found by": """
        SELECT t.id FROM tools AS t WHERE
        (SELECT count(*) FROM tool_tags AS g WHERE g.tool_id = t.id)
        <> (SELECT count(DISTINCT value) FROM json_each(t.tags))""",
    "a passage of a completed file without a search entry": """
        SELECT p.id FROM file_passages AS p JOIN files AS f ON f.id = p.file_id
        WHERE f.status = 'completed' AND NOT f.removed AND trim(p.text) <> ''
        AND p.id NOT IN (SELECT item_id FROM search_items WHERE kind = 'file_passage')""",
    "a search entry without its passage of a file": """
        SELECT item_id FROM search_items WHERE kind = 'file_passage'
        AND item_id NOT IN (SELECT id FROM file_passages)""",
    "an entry of a file's passage in another folder": """
        SELECT i.item_id FROM search_items AS i JOIN file_passages AS p ON p.id = i.item_id
        JOIN files AS f ON f.id = p.file_id WHERE i.kind = 'file_passage' AND i.scope <> f.folder_id""",
    "a known scope whose folder is gone": """
        SELECT scope FROM search_scopes WHERE kind = 'file_passage' AND scope NOT IN (SELECT id FROM folders)""",
    "a passage's entry in another archive": """
        SELECT i.item_id FROM search_items AS i JOIN passages AS p ON p.id = i.item_id
        WHERE i.kind = 'passage' AND i.scope <> p.archive_id""",
    "a message's entry with another agent": """
        SELECT i.item_id FROM search_items AS i JOIN messages AS m ON m.id = i.item_id
        WHERE i.kind = 'message' AND i.scope <> m.agent_id""",
    "postings of no segment": """
        SELECT place FROM search_postings WHERE place >> 12 NOT IN (SELECT id FROM search_segments)""",
    "a segment of a scope without items": f"""
        SELECT scope FROM search_segments AS i WHERE {_KNOWN} AND scope {_OF_KEPT}
        AND gone < size AND NOT EXISTS (SELECT 1 FROM search_items AS e WHERE e.kind = i.kind AND e.scope = i.scope)""",
    "an embedded entry without its vector": """
        SELECT i.item_id FROM search_items AS i
        WHERE i.model IS NOT NULL AND i.checksum <> 0
        AND NOT EXISTS (SELECT 1 FROM search_vectors AS v WHERE v.item = i.id AND v.model = i.model)""",
    "a vector without an embedded entry": """
        SELECT item FROM search_vectors WHERE item NOT IN (SELECT id FROM search_items WHERE model IS NOT NULL)""",
    "a vector without its sketch": """
        SELECT v.item FROM search_vectors AS v
        WHERE NOT EXISTS (SELECT 1 FROM search_sketches AS s WHERE s.item = v.item AND s.model = v.model)""",
    "a sketch without its vector": """
        SELECT s.item FROM search_sketches AS s
        WHERE NOT EXISTS (SELECT 1 FROM search_vectors AS v WHERE v.item = s.item AND v.model = s.model)""",
    "a sketch in another scope than its entry": """
        SELECT s.item FROM search_sketches AS s JOIN search_items AS i ON i.id = s.item
        WHERE s.kind <> i.kind OR s.scope <> i.scope""",
    "vectors of a scope that is not known": """
        SELECT DISTINCT s.scope FROM search_sketches AS s
        WHERE NOT EXISTS (SELECT 1 FROM search_scopes AS n WHERE n.kind = s.kind AND n.scope = s.scope)""",
    "vectors of another model in a scope of one": """
        SELECT s.item FROM search_sketches AS s JOIN search_scopes AS n ON n.kind = s.kind AND n.scope = s.scope
        WHERE NOT n.mixed AND s.model <> n.model""",
    "a known scope whose archive is gone": """
        SELECT scope FROM search_scopes WHERE kind = 'passage' AND scope NOT IN (SELECT id FROM archives)""",
    "a known scope whose agent is gone": """
        SELECT scope FROM search_scopes AS i
        WHERE kind = 'message' AND scope NOT IN (SELECT id FROM agents) AND """
    + _KNOWN,
}
_TEXTS = """
    SELECT p.id, p.text, i.checksum FROM passages AS p
    JOIN search_items AS i ON i.kind = 'passage' AND i.item_id = p.id"""
_ENTRIES = "SELECT item_id, id, checksum, loose, words FROM search_items"
_SEGMENTS = "SELECT id, size, members, checksum FROM search_segments"
_POSTINGS = "SELECT place, postings, checksum FROM search_postings"
_MEMBER = struct.Struct("<qII")
_VECTORS = "SELECT item, model, vector, checksum FROM search_vectors"
_LENGTHS = "SELECT model, count(DISTINCT length(vector)) FROM search_vectors GROUP BY model"


def wrongs(query: Query) -> dict[str, list[Any]]:
    """The inconsistencies, by kind; `query` runs a statement on the database."""
    return {what: found for what, found in _found(query) if found}


def _found(query: Query) -> Iterator[tuple[str, list[Any]]]:
    for what, statement in WRONGS.items():
        yield what, [row[0] for row in query(statement)]
    yield (
        "a vector that is not as it was written",
        [(item, model) for item, model, vector, checksum in query(_VECTORS) if crc32(vector) != checksum],
    )
    yield (
        "a passage whose indexed text is another",
        [key for key, text, of in query(_TEXTS) if crc32(packed(text)) != of],
    )
    segments = query(_SEGMENTS)
    damaged = [("segment", number) for number, _, members, checksum in segments if crc32(members) != checksum]
    damaged += [("postings", place) for place, stored, checksum in query(_POSTINGS) if crc32(stored) != checksum]
    sealed = {member[:2] for _, _, members, _ in segments for member in _MEMBER.iter_unpack(members)}
    entries = query(_ENTRIES)
    damaged += [("entry", item) for item, _, checksum, loose, words in entries if loose and crc32(words) != checksum]
    yield "a part of the text index that is not as it was written", damaged
    yield (
        "a search entry without its words",
        [item for item, number, checksum, loose, _ in entries if not loose and (number, checksum) not in sealed],
    )
    yield "a model with vectors of several lengths", [model for model, lengths in query(_LENGTHS) if lengths > 1]
