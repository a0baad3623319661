"""A store: the studies in a SQLite file or on a PostgreSQL server. Each method is one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, select

from freezethaw.errors import StudyError
from freezethaw.records import Lease, StudyInfo, StudyState
from freezethaw.store import documents, leases, recording, rows, rules
from freezethaw.store.database import Database
from freezethaw.store.sql_storage import SqlStorage
from freezethaw.store.storage import Definition, Process
from freezethaw.store.tables import definitions, prepare, runs
from freezethaw.store.tables import studies as study_table

WAIT_SECONDS = 60.0
LONGEST_NAME = 200


class Store:
    """Studies in a SQLite file or on a PostgreSQL server.

    `wait`: seconds to wait for a lock, or for a database that is away, before giving up. `create`: make a store where
    there is none; else nothing is written, except that a store of an older version is migrated. `known`: the store was
    reached at this URL before, so opening waits for it if it is unavailable.
    """

    def __init__(self, url: str | Path, wait: float = WAIT_SECONDS, create: bool = True, known: bool = False) -> None:
        self._database = Database(url, wait, known)
        try:
            prepare(self._database, create)
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
        """Close the connections. Leases stay as they are."""
        self._database.close()

    def create_or_open(self, name: str, definition: Definition) -> SqlStorage:
        """The study of this name: created, or continued if the definition is of the same study."""
        checked, name = rules.checked_definition(definition), _checked_name(name)

        def create_or_amend(connection: Connection) -> tuple[int, str]:
            found = recording.find_study(connection, name)
            if found is None:
                self._database.lock_names(connection)
                found = recording.find_study(connection, name)  # another process may have created it meanwhile
            if found is None:
                return recording.create_study(connection, name, checked)
            recording.amend(connection, rows.lock_study(connection, found[0]), name, checked)
            return found

        return SqlStorage(self._database, name, *self._database.write(create_or_amend))

    def save(self, name: str, state: StudyState, samples: Any = None) -> tuple[SqlStorage, dict[int, Lease]]:
        """Write a whole study under an unused name.

        Returns it with the leases (of this process) of its pending decisions, by their numbers.
        """
        definition, name = rules.checked_definition(state.definition), _checked_name(name)

        def write_all(connection: Connection) -> tuple[int, str, dict[int, Lease]]:
            self._database.lock_names(connection)
            if recording.find_study(connection, name) is not None:
                raise StudyError(f"there is a study {name!r} in {self.url} already; choose another name")
            study, uid = recording.create_study(connection, name, definition)
            head = rows.lock_study(connection, study)
            granted = recording.write_all(connection, head, state, samples, Process.current())
            rows.advance(connection, head)
            return study, uid, granted

        study, uid, granted = self._database.write(write_all)
        return SqlStorage(self._database, name, study, uid), granted

    def open(self, name: str | None = None) -> SqlStorage:
        """A study that exists; the name may be left out if the store holds exactly one."""
        if name is None:
            name = self._only_name()
        checked = _checked_name(name)
        found = self._database.read(lambda connection: recording.find_study(connection, checked))
        if found is None:
            names = ", ".join(repr(info.name) for info in self.studies())
            raise StudyError(f"there is no study {name!r} in {self.url}; it has {names or 'none'}")
        return SqlStorage(self._database, name, *found)

    def _only_name(self) -> str:
        names = [info.name for info in self.studies()]
        if len(names) == 1:
            return names[0]
        if not names:
            raise StudyError(f"there is no study in {self.url} yet")
        shown = ", ".join(map(repr, names[:20]))
        raise StudyError(f"{self.url} holds {len(names)} studies; name one of {shown}")

    def studies(self) -> tuple[StudyInfo, ...]:
        """All studies, oldest first."""
        # as `StudyState.epochs_trained` counts them
        count = runs.c.epochs + case((runs.c.state == "diverged", 1), else_=0)
        of_study = select(runs.c.study, func.sum(count).label("epochs")).where(~runs.c.added).group_by(runs.c.study)
        trained = of_study.subquery()
        defined = (definitions.c.study == study_table.c.id, definitions.c.version == study_table.c.definition)
        query = select(study_table, trained.c.epochs, definitions.c.document).join(definitions, and_(*defined))
        query = query.outerjoin(trained, trained.c.study == study_table.c.id).order_by(study_table.c.id)
        return tuple(
            StudyInfo(
                row.name,
                row.runs,
                int(row.epochs or 0),
                row.decisions,
                row.created,
                tuple(documents.load(row.document).get(rules.TAGS, ())),
                row.uid,
            )
            for row in self._database.read(lambda connection: connection.execute(query).all())
        )

    def delete(self, name: str) -> None:
        """Delete a study with everything in it except the files of its checkpoints. Its workers can write no more."""

        def delete_it(connection: Connection) -> None:
            found = recording.find_study(connection, _checked_name(name))
            if found is None:
                raise StudyError(f"there is no study {name!r} in {self.url}")
            leases.lock_all(connection, found[0])
            rows.lock_study(connection, found[0])
            connection.execute(delete(study_table).where(study_table.c.id == found[0]))

        self._database.write(delete_it)


def _checked_name(name: object) -> str:
    """Any text may name a study, unless a database cannot hold it."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or documents.printable(name) != name:
        raise StudyError(f"a study's name is a text of 1 to {LONGEST_NAME} characters, not {name!r}")
    return name
