"""The store: studies in a SQLite file or on a PostgreSQL server, shared by many processes and safe against kills.

How a process uses it:

    store = Store("sqlite:///mnist.db")                   # or "postgresql+psycopg://user@host/database"
    study = store.create_or_open("mnist", definition)     # the same again continues; bounds and budget may change
    watcher = Watcher()                                   # this process's own observations of heartbeats; keep it

    gone = study.take_over(watcher)                       # a decision whose worker is gone: carry it on, or
    permit = study.permission(watcher)                    # the lease to decide; None while another process decides
    known = study.load(known)                             # only what changed since; decide outside any transaction
    done = study.commit(permit, Proposal(run, config, to_epoch, reason, basket), known.change, sampler_state)

    with Heartbeat(study.beat, done.lease) as heart:      # while training; heart.lost says what others took over
        study.record(done.lease, Report(epoch, (loss,), (seconds,)), checkpoint)     # LeaseLost: stop
    study.record(done.lease, close="told")                # or together with the last losses

Every method is one transaction. A write shows the token of its lease, and an old one raises `LeaseLost`.
A replay of decision n decides on `study.load(at=study.decision(n).basis)`, `study.sampler_state(before=n)`, the
definition of that snapshot, the seed and the number; the result must be the proposal that was committed.
"""

from freezethaw.store.heartbeat import Heartbeat
from freezethaw.store.leases import LEASE_SECONDS, Watcher
from freezethaw.store.processes import Process
from freezethaw.store.records import (
    Closing,
    Committed,
    Definition,
    Event,
    Lease,
    LeaseState,
    NewCheckpoint,
    Proposal,
    Recorded,
    Report,
    Snapshot,
    StoredCheckpoint,
    StoredDecision,
    StoredHistory,
    StudyInfo,
)
from freezethaw.store.stored_study import StoredStudy
from freezethaw.store.studies import Store
from freezethaw.store.tables import SCHEMA_VERSION

__all__ = [
    "LEASE_SECONDS",
    "SCHEMA_VERSION",
    "Closing",
    "Committed",
    "Definition",
    "Event",
    "Heartbeat",
    "Lease",
    "LeaseState",
    "NewCheckpoint",
    "Process",
    "Proposal",
    "Recorded",
    "Report",
    "Snapshot",
    "Store",
    "StoredCheckpoint",
    "StoredDecision",
    "StoredHistory",
    "StoredStudy",
    "StudyInfo",
    "Watcher",
]
