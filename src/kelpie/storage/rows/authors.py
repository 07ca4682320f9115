"""Authors of rows: the id of a user or an agent, in which the default user takes no space.

On a server without accounts the default user makes everything, and each agent with its blocks names that user eight
times. It is stored as an empty text, which is no id; null still means that nobody is known.
"""

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from kelpie.core.ids import DEFAULT_USER

_DEFAULT = ""


class AuthorId(TypeDecorator[str]):
    """The id of an author. Rows from before this type hold the whole id of the default user, and are read alike."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return _DEFAULT if value == DEFAULT_USER else value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return DEFAULT_USER if value == _DEFAULT else value
