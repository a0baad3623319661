"""Creating the tables, and their version."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select

from freezethaw.errors import StoreError
from freezethaw.store.database import Database
from freezethaw.store.tables import SCHEMA_VERSION, meta, metadata


def prepare(database: Database) -> None:
    """Create the tables where there are none; refuse those of a newer version."""
    with database.reading() as connection:
        found = _version(connection)
    if found is None:
        if database.sqlite:
            database.use_write_ahead_log()
        with database.writing() as connection:
            database.lock_names(connection)
            found = _create(connection)
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"the store {database.shown} was written by a newer freezethaw (schema version {found}; this one knows "
            f"{SCHEMA_VERSION}): upgrade freezethaw here"
        )


def _create(connection: Connection) -> int:
    found = _version(connection)  # another process may have been quicker
    if found is None:
        metadata.create_all(connection)
        connection.execute(insert(meta).values(key="schema_version", value=str(SCHEMA_VERSION)))
        found = SCHEMA_VERSION
    return found


def _version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(meta.name):
        return None
    value = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        raise StoreError(f"the store's schema version is damaged: {value!r}") from None
