"""Limits on the links, tags and search texts that one request may name. More is a 422 with the field's name, before
anything is looked up: a database bounds its statements too, and reports that as a failure.
"""

from typing import Annotated

from fastapi import Query
from pydantic import Field

LINKS_MAX = 1000
TAGS_MAX = 1000
MESSAGES_MAX = 10_000
PART_CHARS_MAX = 10_000  # SQLite refuses patterns of 50,000 bytes, and a character can have four

QUERY_CHARS_MAX = 10_000  # of a search; a longer one finds nothing better and takes seconds

# The first wrong item ends the check of a list: thousands of errors take longer to write than the list to read.
Links = Annotated[list[str], Field(max_length=LINKS_MAX, fail_fast=True)]
Tags = Annotated[list[str], Field(max_length=TAGS_MAX, fail_fast=True)]
MessageIds = Annotated[list[str], Field(max_length=MESSAGES_MAX, fail_fast=True)]
SearchText = Annotated[str, Field(max_length=QUERY_CHARS_MAX)]
Part = Annotated[str | None, Query(max_length=PART_CHARS_MAX, description="Return only items that contain this text.")]
Several = Annotated[list[str] | None, Query(max_length=LINKS_MAX)]
