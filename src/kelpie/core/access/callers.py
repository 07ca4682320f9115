"""Callers: the user a request acts for, with the organisation that its rows belong to.

Every row belongs to one organisation, and so does every user. The API of a `Caller` shows the rows of the caller's
organisation and no others.
"""

from dataclasses import dataclass

from kelpie.core.access.passports import Passport
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, OrganizationId, UserId
from kelpie.core.time import Micros

NAME_CHARS_MAX = 500
DEFAULT_ORGANIZATION_NAME = "default_org"
DEFAULT_USER_NAME = "default_user"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user a request acts for, with the organisation whose rows it may see.

    The operator manages all organisations and their users, but still sees only the rows of the caller's own
    organisation.
    """

    user_id: UserId = DEFAULT_USER
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    operator: bool = False
    key_id: str | None = None  # the API key or access token that was shown, if it was one
    sees_secrets: bool = True  # a read-only caller, or one on a web page, sees no secrets
    web_page: bool = False  # it has an access token, which whoever uses the page can read
    passport: Passport | None = None  # of the tool whose code asks, if it is one


DEFAULT_CALLER = Caller(operator=True)


@dataclass(frozen=True, slots=True)
class Organization:
    id: OrganizationId
    name: str
    privileged_tools: bool
    created_at: Micros
    updated_at: Micros


@dataclass(frozen=True, slots=True)
class User:
    id: UserId
    organization_id: OrganizationId
    name: str
    created_at: Micros | None  # None: it came with Kelpie
    updated_at: Micros
