"""The tools of files that run outside of commits."""

from collections.abc import Mapping

from kelpie.files.grep import GrepFiles
from kelpie.files.semantic_search import SemanticSearchFiles
from kelpie.memory.embeddings import Embeddings
from kelpie.tools.calls.interface import ExternalTool
from kelpie.world.world import World


def file_tools(world: World, embeddings: Embeddings) -> Mapping[str, ExternalTool]:
    """The tools by their names; `open_files` runs inside of commits."""
    return {"grep_files": GrepFiles(world), "semantic_search_files": SemanticSearchFiles(world, embeddings)}
