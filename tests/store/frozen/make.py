"""Writes a database file of the current schema version, once for each version: python -m tests.store.frozen.make."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from freezethaw.records import BasketEntry
from freezethaw.store import Store
from freezethaw.store.tables import SCHEMA_VERSION
from tests.store.small_study import CONFIG, add_run, checkpoint, decide, definition, report


def main() -> None:
    file = Path(__file__).with_name(f"schema-{SCHEMA_VERSION}.db")
    with Store(f"sqlite:///{file}") as store:
        study = store.create_or_open("frozen", definition())
        entry = BasketEntry(None, CONFIG, 0, 1, float("nan"), float("nan"))
        first = decide(study, state={"weights": [0.5, 0.5], "turn": 1}, basket=(entry,)).lease
        study.record(first, report(1, 3.0, 2.0, seconds=(0.1, 0.2), metrics=({"accuracy": 0.5}, {})))
        study.record(first, report(2, 2.5, 1.0), checkpoint(3, "frozen-0/run-1/epoch-3-1-ab", "ab" * 32, 10))
        study.record(first, report(4, 0.5), close="told")
        study.record(decide(study).lease, report(1, 9.0), close="diverged")
        third = decide(study, state={"weights": [0.25, 0.75], "turn": 3}).lease
        study.record(third, report(1, 2.0), close="out_of_memory")
        add_run(study, {"rate": 0.2, "units": 1}, [4.0, 3.0, 2.0])
        store.create_or_open("frozen", definition(max_epochs=12))
        study.request(None, {"rate": 0.3, "units": 2}, 2)
        study.record(decide(study, run=1, to_epoch=5).lease, close="interrupted")
        study.add_event("note", "the end")
    connection = sqlite3.connect(file)
    connection.execute("UPDATE freezethaw_leases SET host = 'host', boot = 'boot', pid = 1, started = '1'")
    connection.commit()
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    main()
