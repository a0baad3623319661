"""The tables and their version. Every row belongs to a study and carries the study's change counter of its last change.

Writes to one study are serialised (its row is locked first), so change counters are in commit order: a reader that
knows everything up to change c queries rows with a greater one. Rows record when they began and ended, so that the
state at any earlier change can be read too, which a replay needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from freezethaw.errors import StoreError
from freezethaw.store.database import WRITERS, Database

SCHEMA_VERSION = 4

metadata = MetaData()
_Whole = Integer().with_variant(BigInteger, "postgresql")


def _whole(name: str, **options: Any) -> Column[int]:
    return Column(name, _Whole, **{"nullable": False, **options})


def _text(name: str, **options: Any) -> Column[str]:
    return Column(name, Text, **{"nullable": False, **options})


def _study(**options: Any) -> Column[int]:
    return Column("study", _Whole, ForeignKey("freezethaw_studies.id", ondelete="CASCADE"), nullable=False, **options)


def _key(name: str) -> Column[int]:
    return _whole(name, primary_key=True, autoincrement=False)


meta = Table("freezethaw_meta", metadata, _text("key", primary_key=True), _text("value"))

studies = Table(
    "freezethaw_studies",
    metadata,
    Column("id", _Whole, primary_key=True, autoincrement=True),
    _text("uid", unique=True),  # names the folder of its checkpoints
    _text("name", unique=True),
    _whole("definition"),  # the current version
    _whole("max_epochs"),
    _whole("change"),  # grows by one with each transaction
    _whole("runs"),  # their number: numbers are never reused
    _whole("decisions"),
    _whole("requests"),
    _whole("checkpoints"),
    _text("created"),  # for people; never compared
    sqlite_autoincrement=True,  # a deleted study's id is never reused: its workers must not write to another study
)

definitions = Table(
    "freezethaw_definitions",
    metadata,
    _study(primary_key=True),
    _key("version"),
    _whole("change"),
    _text("document"),
    _text("difference"),  # from the version before, for people
)

runs = Table(
    "freezethaw_runs",
    metadata,
    _study(primary_key=True),
    _key("run"),
    _text("config"),
    _text("state"),
    _text("outcome"),
    Column("added", Boolean, nullable=False),
    _whole("epochs"),  # recorded: curves have no gaps, so this is also the last one
    _whole("created"),
    _whole("change"),
    Index("freezethaw_runs_change", "study", "change"),
)

epochs = Table(
    "freezethaw_epochs",
    metadata,
    _key("study"),
    _key("run"),
    _key("epoch"),
    Column(
        "loss",
        Double,
        CheckConstraint("loss BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"),
        nullable=False,
    ),
    Column("seconds", Double, nullable=True),  # NULL if unknown
    Column("metrics", Text, nullable=True),
    _whole("change"),
    ForeignKeyConstraint(["study", "run"], ["freezethaw_runs.study", "freezethaw_runs.run"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

decisions = Table(
    "freezethaw_decisions",
    metadata,
    _study(primary_key=True),
    _key("number"),
    _text("kind"),
    _whole("run"),
    _whole("from_epoch"),
    _whole("to_epoch"),
    _text("reason"),
    _text("basket"),
    Column("seconds", Double, nullable=True),  # that deciding took
    Column("saving", Double, nullable=True),  # that saving the run before it took
    _whole("definition"),  # the version it was decided under
    _whole("basis"),  # the last change known to the decision
    _text("state"),  # pending, told, cancelled
    _text("outcome"),
    Column("reached", _Whole, nullable=True),  # the run's epoch when it ended
    _whole("committed"),
    Column("closed", _Whole, nullable=True),
    _whole("change"),
    Index("freezethaw_decisions_change", "study", "change"),
    Index("freezethaw_decisions_run", "study", "run"),
)

sampler_states = Table(
    "freezethaw_sampler_states",
    metadata,
    _study(primary_key=True),
    _key("decision"),
    Column("base", _Whole, nullable=True),  # the decision to whose samples this is a difference; NULL: full
    _text("document"),
)

leases = Table(
    "freezethaw_leases",
    metadata,
    _study(primary_key=True),
    _key("run"),
    _whole("token"),  # only grows
    _whole("beat"),  # the heartbeat counter
    Column("held", Boolean, nullable=False),
    _whole("decision"),
    _text("host"),
    _text("boot"),
    _whole("pid"),
    _text("started"),
)

requests = Table(
    "freezethaw_requests",
    metadata,
    _study(primary_key=True),
    _key("number"),
    Column("run", _Whole, nullable=True),
    Column("config", Text, nullable=True),
    _whole("to_epoch"),
    _whole("created"),
    Column("closed", _Whole, nullable=True),
    Column("reason", Text, nullable=True),  # of the decision that planned it; null: requested by the user
)

checkpoints = Table(
    "freezethaw_checkpoints",
    metadata,
    _study(primary_key=True),
    _key("number"),
    _whole("run"),
    _whole("epoch"),
    _text("place"),
    _text("sha256"),
    _whole("bytes"),
    _text("state"),  # kept, replaced, evicted, damaged
    _whole("created"),  # the change that added it
    _whole("change"),
    Index("freezethaw_checkpoints_run", "study", "run"),
    Index("freezethaw_checkpoints_change", "study", "change"),
)

events = Table(
    "freezethaw_events",
    metadata,
    Column("id", _Whole, primary_key=True, autoincrement=True),
    _study(index=True),
    _whole("change"),
    _text("kind"),
    Column("run", _Whole, nullable=True),
    Column("epoch", _Whole, nullable=True),
    _text("text"),
    _text("details"),
    _text("at"),  # for people; never compared
    sqlite_autoincrement=True,
)

queue = Table(
    "freezethaw_queue",  # processes that wait for the decision lease, in the order of asking
    metadata,
    Column("ticket", _Whole, primary_key=True, autoincrement=True),
    _study(index=True),
    _text("host"),
    _text("boot"),
    _whole("pid"),
    _text("started"),
    sqlite_autoincrement=True,
)

writers = Table(
    WRITERS,  # connections to a server, with the number of their last transaction
    metadata,
    _text("writer", primary_key=True),
    _whole("number"),
    Column("seen", DateTime(timezone=True), nullable=False),  # by the server's clock, to remove old ones
)


def prepare(database: Database, create: bool = True) -> None:
    """Create the tables if there are none and `create`, migrate those of an older version, refuse those of a newer one.

    Nothing else is written. A file that this process may not write is migrated in a copy.
    """
    found = None if database.missing else database.read(_version)
    if found is None and not create:
        raise StoreError(
            f"there is no store {database.shown}: the file does not exist"
            if database.missing
            else f"{database.shown} is no store of freezethaw: it has none of its tables"
        )
    if found is None:
        if database.sqlite:
            database.use_write_ahead_log()
        found = database.write(lambda connection: _locked(database, connection, _create), repeatable=True)
    if found < SCHEMA_VERSION:
        if database.read_only:
            database.use_copy()
            with database.writing() as connection:
                found = _migrate(connection)
        else:
            found = database.write(lambda connection: _locked(database, connection, _migrate), repeatable=True)
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"the store {database.shown} was written by a newer freezethaw (schema version {found}; this one knows "
            f"{SCHEMA_VERSION}): upgrade freezethaw here"
        )


def _locked(database: Database, connection: Connection, change: Callable[[Connection], int]) -> int:
    database.lock_names(connection)
    return change(connection)


def _create(connection: Connection) -> int:
    found = _version(connection)  # another process may have done it meanwhile
    if found is None:
        metadata.create_all(connection)
        connection.execute(insert(meta).values(key="schema_version", value=str(SCHEMA_VERSION)))
        found = SCHEMA_VERSION
    return found


# version -> statements that lead to the next one
MIGRATIONS = {
    1: (
        "ALTER TABLE freezethaw_wishes RENAME TO freezethaw_requests",
        "ALTER TABLE freezethaw_studies RENAME COLUMN wishes TO requests",
        "ALTER TABLE freezethaw_decisions ADD COLUMN seconds DOUBLE PRECISION",
    ),
    2: (
        "ALTER TABLE freezethaw_decisions ADD COLUMN saving DOUBLE PRECISION",
        "ALTER TABLE freezethaw_requests ADD COLUMN reason TEXT",
    ),
    3: (),  # new tables only
}


def _migrate(connection: Connection) -> int:
    found = _version(connection) or 0  # another process may have done it meanwhile
    while found in MIGRATIONS:
        for statement in MIGRATIONS[found]:
            connection.execute(text(statement))
        found += 1
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(found)))
    if found == SCHEMA_VERSION:
        metadata.create_all(connection)
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
