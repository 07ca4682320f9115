"""What must hold of searchable things on the disk: after every commit, and once everything has come to rest."""

from kelpie.sim.disk import Disk
from kelpie.sim.errors import Broken
from kelpie.storage.inspection import wrongs

_UNFINISHED = {
    # Tools wait until somebody looks for something by meaning.
    "entries that were never embedded": "SELECT item_id FROM search_items WHERE model IS NULL AND kind <> 'tool'",
    "scopes with vectors of several models": "SELECT scope FROM search_scopes WHERE mixed",
    "entries of another model than their scope is searched by": """
        SELECT i.item_id FROM search_items AS i JOIN search_scopes AS n ON n.kind = i.kind AND n.scope = i.scope
        WHERE i.model <> n.model""",
    "archives that are not searched by the model meant for them": """
        SELECT a.id FROM archives AS a JOIN search_scopes AS n ON n.kind = 'passage' AND n.scope = a.id
        WHERE n.model <> coalesce(a.embedding, '{default}')""",
    "agents that are not searched by the model meant for them": """
        SELECT a.id FROM agents AS a JOIN search_scopes AS n ON n.kind = 'message' AND n.scope = a.id
        WHERE n.model <> coalesce(a.embedding, '{default}')""",
}


class Index:
    """Looks after every commit that nothing searchable is half there. One per run."""

    def __call__(self, disk: Disk) -> None:
        index_is_whole(disk)


def index_is_whole(disk: Disk) -> None:
    """Every row has its entry, its text and its vectors, and nothing has been left of any that is gone."""
    for what, found in wrongs(disk.query).items():
        raise Broken("what can be searched is whole", f"{what}: {found[:5]}")


def all_embedded(disk: Disk, default: str) -> None:
    """At rest everything is embedded by the model that is meant for it, and by no other."""
    for what, statement in _UNFINISHED.items():
        if found := disk.query(statement.format(default=default)):
            raise Broken("everything ends embedded by the model meant for it", f"{what}: {found[:5]}")
