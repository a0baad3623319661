"""The rows of a study and of the versions of its definition: found, created, amended, remarked on."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from freezethaw.store import definitions, documents, events, heads, leases, loading
from freezethaw.store.heads import Head
from freezethaw.store.records import Definition
from freezethaw.store.tables import definitions as definition_table
from freezethaw.store.tables import runs, studies


def find(connection: Connection, name: str) -> tuple[int, str] | None:
    """The number and the uid of a study."""
    row = connection.execute(select(studies.c.id, studies.c.uid).where(studies.c.name == name)).one_or_none()
    return None if row is None else (row.id, row.uid)


def create(connection: Connection, name: str, definition: Mapping[str, Any]) -> tuple[int, str]:
    """A new study; gives its number and its uid."""
    uid = uuid.uuid4().hex
    counters = dict.fromkeys(("change", "runs", "decisions", "wishes", "checkpoints"), 0)
    row = {"uid": uid, "name": name, "definition": 1, "max_epochs": definition["max_epochs"], "created": events.now()}
    connection.execute(insert(studies).values(row | counters))
    number = connection.execute(select(studies.c.id).where(studies.c.uid == uid)).scalar_one()
    document = {"study": number, "version": 1, "change": 0, "document": documents.dump(dict(definition))}
    connection.execute(insert(definition_table).values(**document, difference=""))
    leases.first(connection, number)
    return number, uid


def current(connection: Connection, head: Head) -> dict[str, Any]:
    """The definition that holds."""
    return loading.read(connection, head.study, head.definition)


def amend(connection: Connection, head: Head, name: str, definition: Definition) -> None:
    """Go on with another definition, as far as it is of the same study: a new version, with an event."""
    study = head.study
    amendment = definitions.amend(current(connection, head), definition, name)
    if not amendment:
        return
    head.definition += 1
    head.max_epochs = definition["max_epochs"]
    text = documents.dump(dict(amendment.definition))
    difference = documents.printable(amendment.difference)
    row = {"study": study, "version": head.definition, "change": head.change, "document": text}
    connection.execute(insert(definition_table).values(**row, difference=difference))
    grown = (runs.c.study == study, runs.c.state == "finished", ~runs.c.added, runs.c.epochs < head.max_epochs)
    connection.execute(update(runs).where(*grown).values(state="frozen", change=head.change))
    events.add(connection, head, "definition changed", f"the study was continued with changes: {difference}")
    heads.advance(connection, head)


def remark(connection: Connection, head: Head, key: str, value: object) -> None:
    """Change an entry of the definition on which no decision depends, in the version that holds."""
    definition = current(connection, head) | {key: value}
    where = (definition_table.c.study == head.study, definition_table.c.version == head.definition)
    connection.execute(update(definition_table).where(*where).values(document=documents.dump(definition)))
