"""Templates and their versions as rows. A template's name is unique in its organization.

Everything that changes a template first locks its row, so versions are numbered without gaps. A saved version is never
changed; the unsaved one becomes a saved one by getting its number.
"""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from kelpie.core.agents.templates import (
    ALL_BYTES_MAX,
    TEMPLATES_MAX,
    UNSAVED,
    VERSIONS_MAX,
    NewVersion,
    Snapshot,
    Template,
    TemplateVersion,
)
from kelpie.core.errors import Conflict, Damaged, NotFound
from kelpie.core.ids import OrganizationId, TemplateId, TemplateVersionId
from kelpie.core.paging import Page
from kelpie.core.time import Micros
from kelpie.storage.rows.checksums import checksum, report
from kelpie.storage.rows.paging import Paging, known
from kelpie.storage.tables import template_versions, templates
from kelpie.world.database import Tx

_v = template_versions.c
_CHANGED = (
    sa.exists().where(_v.template_id == templates.c.id, _v.number == UNSAVED).correlate(templates).label("changed")
)
_OURS = sa.select(*templates.c, _CHANGED).where(templates.c.organization_id == sa.bindparam("of_organization"))
_ONE = _OURS.where(templates.c.name == sa.bindparam("of_name"))
_ONE_LOCKED = _ONE.with_for_update(of=templates)
_COUNT = sa.select(sa.func.count()).where(templates.c.organization_id == sa.bindparam("of_organization"))
_INSERT = sa.insert(templates)
_UPDATE = (
    sa.update(templates)
    .where(templates.c.id == sa.bindparam("of_template"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("latest", "base", "last_updated_by_id", "updated_at")})
)
_DELETE = sa.delete(templates).where(templates.c.id == sa.bindparam("of_template"))
_PAGES = Paging(templates, "created_at", "updated_at")

_LISTED = [_v.id, _v.number, _v.variables, _v.size, _v.created_at, _v.message, _v.created_by_id]
_OF_TEMPLATE = _v.template_id == sa.bindparam("of_template")
_VERSIONS = sa.select(*_LISTED).where(_OF_TEMPLATE).order_by(_v.number.desc()).limit(VERSIONS_MAX + 1)
_VERSION = sa.select(template_versions).where(_OF_TEMPLATE, _v.number == sa.bindparam("of_number"))
_ADD = sa.insert(template_versions)
_DROP = sa.delete(template_versions).where(_OF_TEMPLATE, _v.number == UNSAVED)
_NUMBER = (
    sa.update(template_versions)
    .where(_OF_TEMPLATE, _v.number == UNSAVED)
    .values(
        number=sa.bindparam("new_number"),
        message=sa.bindparam("new_message"),
        created_at=sa.bindparam("new_created_at"),
        created_by_id=sa.bindparam("new_created_by_id"),
    )
)
_BYTES = sa.select(sa.func.coalesce(sa.func.sum(_v.size), 0)).where(_OF_TEMPLATE)


def create(tx: Tx, organization: OrganizationId, new: Template, version: NewVersion, version_id: str) -> None:
    """Stores a template with its first version. Raises Conflict for a name that is taken, and for too many."""
    if tx.execute(_COUNT, {"of_organization": organization}).scalar_one() >= TEMPLATES_MAX:
        raise Conflict(f"The organization has {TEMPLATES_MAX} templates, which is the limit. Delete one first.")
    row = {
        "id": new.id,
        "organization_id": organization,
        "name": new.name,
        "description": new.description,
        "latest": new.latest,
        "base": new.base,
        "created_by_id": new.created_by_id,
        "last_updated_by_id": new.last_updated_by_id,
        "created_at": new.created_at,
        "updated_at": new.updated_at,
    }
    if find(tx, organization, new.name) is not None:
        raise _taken(new.name)
    try:
        tx.execute(_INSERT, row)
    except IntegrityError:
        raise _taken(new.name) from None
    _add(tx, organization, new, version, version_id, 1, None, new.created_at, new.created_by_id)


def _taken(name: str) -> Conflict:
    return Conflict(f"A template named '{name}' exists already. Choose another name, or update that template.")


def find(tx: Tx, organization: OrganizationId, name: str) -> Template | None:
    """The template of this name, if there is one."""
    row = tx.execute(_ONE, {"of_organization": organization, "of_name": name}).first()
    return None if row is None else _from_row(row)


def get(tx: Tx, organization: OrganizationId, name: str, *, lock: bool = False) -> Template:
    """Raises NotFound."""
    given = {"of_organization": organization, "of_name": name}
    row = tx.execute(_ONE_LOCKED if lock else _ONE, given).first()
    if row is None:
        raise NotFound("Template", name[:200], "Give the name of one that exists; the list of templates has them.")
    return _from_row(row)


def select(tx: Tx, organization: OrganizationId, page: Page) -> tuple[list[Template], bool]:
    """A page of templates, and whether others follow where it ends. Raises InvalidInput for a page that cannot be."""
    given, within = {"of_organization": organization}, {"organization_id": organization}
    wanted = known(tx, templates, page, within)
    one_more = replace(wanted, limit=None if page.limit is None else page.limit + 1, bytes_max=None)
    rows = _PAGES.rows(tx, _OURS, one_more, given, within=within)
    if more := page.limit is not None and len(rows) > page.limit:
        rows = rows[1:] if wanted.backwards else rows[:-1]
    return [_from_row(row) for row in rows], more


def versions(tx: Tx, template: Template) -> list[TemplateVersion]:
    """The versions of a template without their documents: the newest first, an unsaved one last."""
    return [_version(row) for row in tx.execute(_VERSIONS, {"of_template": template.id})]


def snapshot(tx: Tx, template: Template, number: int | None) -> Snapshot:
    """A version with its document; None: the latest, 0: the current one. Raises NotFound, Damaged."""
    if number is None:
        number = template.latest
    elif number == UNSAVED and not template.changed:
        number = template.base
    row = tx.execute(_VERSION, {"of_template": template.id, "of_number": number}).first()
    if row is None:
        raise NotFound("Template version", f"{template.name}:{number}", f"The newest is {template.name}:latest.")
    if row.checksum != checksum(row.document):
        report("template version", row.id)
        raise Damaged("Template version", f"{template.name}:{number}")
    return Snapshot(template, _version(row), row.document)


def put(
    tx: Tx,
    organization: OrganizationId,
    template: Template,
    new: NewVersion,
    version_id: str,
    now: Micros,
    user: str,
) -> Template:
    """Makes a document the current version, in place of another unsaved one. Raises Conflict for too many bytes."""
    tx.execute(_DROP, {"of_template": template.id})
    changed = new.document != snapshot(tx, template, template.base).document
    if changed:
        _add(tx, organization, template, new, version_id, UNSAVED, None, now, user)
    return _write(tx, template, template.latest, template.base, changed, now, user)


def save(
    tx: Tx,
    organization: OrganizationId,
    template: Template,
    version_id: str,
    message: str | None,
    now: Micros,
    user: str,
) -> Template:
    """Stores the current version under the next number. Raises Conflict for too many versions or bytes."""
    number = template.latest + 1
    if number > VERSIONS_MAX:
        raise Conflict(
            f"The template '{template.name}' has {VERSIONS_MAX} versions, which is the limit. "
            "Create another template from one of its agents, or delete it."
        )
    if template.changed:
        named = {"new_number": number, "new_message": message, "new_created_at": now, "new_created_by_id": user}
        tx.execute(_NUMBER, {"of_template": template.id, **named})
    else:
        found = snapshot(tx, template, UNSAVED)
        copied = NewVersion(found.document, found.version.variables)
        _add(tx, organization, template, copied, version_id, number, message, now, user)
    return _write(tx, template, number, number, False, now, user)


def roll_back(tx: Tx, template: Template, number: int, now: Micros, user: str) -> Template:
    """Makes a saved version the current one. Raises NotFound, Damaged."""
    snapshot(tx, template, number)
    tx.execute(_DROP, {"of_template": template.id})
    return _write(tx, template, template.latest, number, False, now, user)


def delete(tx: Tx, template: Template) -> None:
    """Deletes a template with all of its versions."""
    tx.execute(_DELETE, {"of_template": template.id})


def _add(
    tx: Tx,
    organization: OrganizationId,
    template: Template,
    new: NewVersion,
    version_id: str,
    number: int,
    message: str | None,
    now: Micros,
    user: str | None,
) -> None:
    size = len(new.document.encode())
    if tx.execute(_BYTES, {"of_template": template.id}).scalar_one() + size > ALL_BYTES_MAX:
        raise Conflict(
            f"The versions of the template '{template.name}' would have more than {ALL_BYTES_MAX} bytes together. "
            "Create another template from one of its agents, or delete it."
        )
    row = {
        "id": version_id,
        "template_id": template.id,
        "organization_id": organization,
        "number": number,
        "message": message,
        "variables": list(new.variables),
        "document": new.document,
        "size": size,
        "checksum": checksum(new.document),
        "created_by_id": user,
        "created_at": now,
    }
    tx.execute(_ADD, row)


def _write(tx: Tx, template: Template, latest: int, base: int, changed: bool, now: Micros, user: str) -> Template:
    named = {"new_latest": latest, "new_base": base, "new_last_updated_by_id": user, "new_updated_at": now}
    tx.execute(_UPDATE, {"of_template": template.id, **named})
    return replace(template, latest=latest, base=base, changed=changed, updated_at=now, last_updated_by_id=user)


def _from_row(row: sa.Row[Any]) -> Template:
    return Template(
        id=TemplateId(row.id),
        name=row.name,
        latest=row.latest,
        base=row.base,
        created_at=row.created_at,
        updated_at=row.updated_at,
        changed=bool(row.changed),
        description=row.description,
        created_by_id=row.created_by_id,
        last_updated_by_id=row.last_updated_by_id,
    )


def _version(row: sa.Row[Any]) -> TemplateVersion:
    return TemplateVersion(
        id=TemplateVersionId(row.id),
        number=row.number,
        variables=tuple(row.variables),
        size=row.size,
        created_at=row.created_at,
        message=row.message,
        created_by_id=row.created_by_id,
    )
