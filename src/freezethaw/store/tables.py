"""The tables. Every row belongs to a study and carries the study's change counter of when it last changed.

All writes to one study happen one after the other (its row is locked first), so change counters are in commit order:
whoever knows everything up to change c asks for rows with a greater one. Rows that end keep when they began and ended,
so that the content of the store as of any earlier change can be read too, which is what a replay needs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

SCHEMA_VERSION = 1
DECISIONS = 0  # stands for the run in the lease to decide; runs count from 1

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
    _whole("definition"),  # the version in force
    _whole("max_epochs"),
    _whole("change"),  # grows by one with each transaction
    _whole("runs"),  # how many there are: numbers are never given twice
    _whole("decisions"),
    _whole("wishes"),
    _whole("checkpoints"),
    _text("created"),  # for people; never compared
    sqlite_autoincrement=True,  # a deleted study's id is not given to another, whom its workers would write to
)

definitions = Table(
    "freezethaw_definitions",
    metadata,
    _study(primary_key=True),
    _key("version"),
    _whole("change"),
    _text("document"),
    _text("difference"),  # from the version before, in words
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
    Column("seconds", Double, nullable=True),  # NULL where not told
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
    _whole("definition"),  # the version it was taken under
    _whole("basis"),  # the change up to which the decider had seen the store
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
    Column("base", _Whole, nullable=True),  # the decision whose state this is a difference to; NULL: whole
    _text("document"),
)

leases = Table(
    "freezethaw_leases",
    metadata,
    _study(primary_key=True),
    _key("run"),
    _whole("token"),  # only grows
    _whole("beat"),  # the holder lives as long as this moves
    Column("held", Boolean, nullable=False),
    _whole("decision"),
    _text("host"),
    _text("boot"),
    _whole("pid"),
    _text("started"),
)

wishes = Table(
    "freezethaw_wishes",
    metadata,
    _study(primary_key=True),
    _key("number"),
    Column("run", _Whole, nullable=True),
    Column("config", Text, nullable=True),
    _whole("to_epoch"),
    _whole("created"),
    Column("closed", _Whole, nullable=True),
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
    _whole("created"),  # the change that brought it
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
