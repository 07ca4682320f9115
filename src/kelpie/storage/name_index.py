"""An index of agent names by trigrams, for the search of a part of a name among very many agents.

SQLite keeps it in a full-text table without content, which triggers update with every change of a name. The number of
an agent in it is a column that only this module uses: SQLite may renumber rows that have no number of their own.
PostgreSQL has an index type for this, which needs no table. The index finds candidates, never results: a query must
still compare the names, because the index knows more letters than the comparison does.
"""

from sqlalchemy import text

from kelpie.world.database import Tx

PART = 3  # characters of a trigram; the index cannot help to find a shorter text

_FIND = text(
    "SELECT numbered.id FROM agents AS numbered WHERE numbered.name_number IN "
    "(SELECT rowid FROM agent_names WHERE agent_names MATCH :parts LIMIT :most)"
)


def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make the index of a new database, after its tables."""
    if dialect != "sqlite":
        return ()
    added = "INSERT INTO agent_names (rowid, name) VALUES ({number}, NEW.name)"
    removed = "INSERT INTO agent_names (agent_names, rowid, name) VALUES ('delete', OLD.name_number, OLD.name)"
    new = "(SELECT name_number FROM agents WHERE rowid = NEW.rowid)"
    return (
        "ALTER TABLE agents ADD COLUMN name_number INTEGER",
        "CREATE UNIQUE INDEX ix_agents_name_number ON agents (name_number)",
        "CREATE VIRTUAL TABLE agent_names USING fts5(name, content='', tokenize='trigram', detail='none')",
        "CREATE TRIGGER agent_name_insert AFTER INSERT ON agents FOR EACH ROW BEGIN "
        "UPDATE agents SET name_number = (SELECT coalesce(max(name_number), 0) + 1 FROM agents) "
        f"WHERE rowid = NEW.rowid; {added.format(number=new)}; END",
        "CREATE TRIGGER agent_name_update AFTER UPDATE OF name ON agents FOR EACH ROW WHEN NEW.name <> OLD.name BEGIN "
        f"{removed}; {added.format(number='NEW.name_number')}; END",
        f"CREATE TRIGGER agent_name_delete AFTER DELETE ON agents FOR EACH ROW BEGIN {removed}; END",
    )


def candidates(tx: Tx, part: str, most: int) -> list[str] | None:
    """Up to `most` agents, of any organization, among which are all whose names contain the text; None where the index
    cannot tell, or when there are more.
    """
    if tx.dialect.name != "sqlite" or len(part) < PART or "\0" in part:
        return None
    trigrams = dict.fromkeys(part[start : start + PART] for start in range(len(part) - PART + 1))
    quoted = " ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    found = tx.execute(_FIND, {"parts": quoted, "most": most + 1}).scalars().all()
    return None if len(found) > most else list(found)
