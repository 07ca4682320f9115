"""An index of agent names by trigrams, for the search of a part of a name among very many agents.

SQLite keeps it in a full-text table without content, which triggers update with every change of a name. The number of
an agent in it is a row of `agent_numbers`: SQLite may renumber rows that have no number of their own. PostgreSQL has an
index type for this, which needs no table. The index finds candidates, never results: a query must still compare the
names, because the index knows more letters than the comparison does.
"""

from sqlalchemy import text

from kelpie.world.database import Tx

PART = 3  # characters of a trigram; the index cannot help to find a shorter text

_NUMBER = "SELECT number FROM agent_numbers WHERE agent_id = {row}.id"
_FIND = text(
    "SELECT numbered.agent_id FROM agent_numbers AS numbered WHERE numbered.number IN "
    "(SELECT rowid FROM agent_names WHERE agent_names MATCH :parts LIMIT :most)"
)


def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make the index of a new database, after its tables."""
    if dialect != "sqlite":
        return ()
    added = f"INSERT INTO agent_names (rowid, name) SELECT number, NEW.name FROM ({_NUMBER.format(row='NEW')})"
    removed = (
        "INSERT INTO agent_names (agent_names, rowid, name) "
        f"SELECT 'delete', number, OLD.name FROM ({_NUMBER.format(row='OLD')})"
    )
    return (
        "CREATE TABLE agent_numbers (number INTEGER PRIMARY KEY, agent_id TEXT NOT NULL UNIQUE)",
        "CREATE VIRTUAL TABLE agent_names USING fts5(name, content='', tokenize='trigram', detail='none')",
        "CREATE TRIGGER agent_name_insert AFTER INSERT ON agents FOR EACH ROW BEGIN "
        f"INSERT INTO agent_numbers (agent_id) VALUES (NEW.id); {added}; END",
        "CREATE TRIGGER agent_name_update AFTER UPDATE OF name ON agents FOR EACH ROW WHEN NEW.name <> OLD.name BEGIN "
        f"{removed}; {added}; END",
        "CREATE TRIGGER agent_name_delete AFTER DELETE ON agents FOR EACH ROW BEGIN "
        f"{removed}; DELETE FROM agent_numbers WHERE agent_id = OLD.id; END",
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
