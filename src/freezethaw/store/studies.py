"""A store: the studies in a SQLite file or on a PostgreSQL server. Each method is one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, delete, func, select

from freezethaw.errors import StudyError
from freezethaw.store import defining, definitions, documents, heads, leases, saving
from freezethaw.store.database import Database
from freezethaw.store.processes import Process
from freezethaw.store.records import Definition, Lease, Snapshot, StudyInfo
from freezethaw.store.schema import prepare
from freezethaw.store.stored_study import StoredStudy
from freezethaw.store.tables import definitions as definition_table
from freezethaw.store.tables import runs
from freezethaw.store.tables import studies as study_table

WAIT_SECONDS = 60.0
LONGEST_NAME = 200


class Store:
    """Studies in a SQLite file or on a PostgreSQL server. `wait`: seconds to wait for a lock before giving up."""

    def __init__(self, url: str, wait: float = WAIT_SECONDS) -> None:
        self._database = Database(url, wait)
        try:
            prepare(self._database)
        except BaseException:
            self._database.close()
            raise

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def url(self) -> str:
        """Where it is, with the password masked."""
        return self._database.shown

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. Leases stay as they are."""
        self._database.close()

    def create_or_open(self, name: str, definition: Definition) -> StoredStudy:
        """The study of this name: created, or continued as far as the definition is of the same study."""
        checked, name = definitions.checked(definition), _checked_name(name)
        with self._database.writing() as connection:
            found = defining.find(connection, name)
            if found is None:
                self._database.lock_names(connection)
                found = defining.find(connection, name)  # another process may have been quicker
            if found is None:
                found = defining.create(connection, name, checked)
            else:
                defining.amend(connection, heads.lock(connection, found[0]), name, checked)
        return StoredStudy(self._database, name, *found)

    def save(self, name: str, snapshot: Snapshot, sampler_state: Any = None) -> tuple[StoredStudy, dict[int, Lease]]:
        """Write a whole study from elsewhere under a name that is free.

        Gives it, and the leases (of this process) of its pending decisions by their numbers.
        """
        definition, name = definitions.checked(snapshot.definition), _checked_name(name)
        with self._database.writing() as connection:
            self._database.lock_names(connection)
            if defining.find(connection, name) is not None:
                raise StudyError(f"there is a study {name!r} in {self.url} already: choose another name, or delete it")
            found = defining.create(connection, name, definition)
            head = heads.lock(connection, found[0])
            granted = saving.write(connection, head, snapshot, sampler_state, Process.current())
            heads.advance(connection, head)
        return StoredStudy(self._database, name, *found), granted

    def open(self, name: str) -> StoredStudy:
        """A study that exists."""
        with self._database.reading() as connection:
            found = defining.find(connection, _checked_name(name))
            if found is None:
                query = select(study_table.c.name).order_by(study_table.c.id).limit(20)
                names = ", ".join(repr(row.name) for row in connection.execute(query))
                raise StudyError(f"there is no study {name!r} in {self.url}; it has {names or 'none'}")
        return StoredStudy(self._database, name, *found)

    def studies(self) -> tuple[StudyInfo, ...]:
        """All studies, oldest first."""
        trained = select(runs.c.study, func.sum(runs.c.epochs).label("epochs")).group_by(runs.c.study).subquery()
        defined = (definition_table.c.study == study_table.c.id, definition_table.c.version == study_table.c.definition)
        query = select(study_table, trained.c.epochs, definition_table.c.document).join(
            definition_table, and_(*defined)
        )
        query = query.outerjoin(trained, trained.c.study == study_table.c.id).order_by(study_table.c.id)
        with self._database.reading() as connection:
            return tuple(
                StudyInfo(
                    row.name,
                    row.runs,
                    int(row.epochs or 0),
                    row.decisions,
                    row.created,
                    tuple(documents.load(row.document).get(definitions.TAGS, ())),
                    row.uid,
                )
                for row in connection.execute(query)
            )

    def delete(self, name: str) -> None:
        """Delete a study with everything in it but the files of its checkpoints. Its workers can write no more."""
        with self._database.writing() as connection:
            found = defining.find(connection, _checked_name(name))
            if found is None:
                raise StudyError(f"there is no study {name!r} in {self.url}")
            leases.lock_all(connection, found[0])
            heads.lock(connection, found[0])
            connection.execute(delete(study_table).where(study_table.c.id == found[0]))


def _checked_name(name: object) -> str:
    """Any text may name a study; only what a database cannot hold is refused."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or documents.printable(name) != name:
        raise StudyError(f"a study's name is a text of 1 to {LONGEST_NAME} characters, not {name!r}")
    return name
