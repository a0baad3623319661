"""Part of what every store does: what was known at a decision comes back, events are kept, and nobody stops others."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest

from freezethaw.errors import StoreError, StudyError
from freezethaw.store import Store
from tests.store.small_study import CONFIG, decide, definition, opened, report


class HistoryContract:
    """Needs a fixture `url` of an empty store."""

    def test_every_sampler_state_comes_back_and_differences_are_small(self, url):
        study, states = opened(url), []
        state = {"anchor": [0.1] * 200, "samples": [{"a": 0.1, "b": -math.inf} for _ in range(10)], "turn": 0}
        for turn in range(70):
            samples = [dict(s) for s in state["samples"]]
            samples[turn % 10]["a"] = 1 / (turn + 3)
            state = {**state, "samples": samples, "turn": turn}
            if turn == 40:
                study = opened(url)  # another process goes on
            if turn == 50:
                state = {**state, "anchor": [0.2] * 100, "new": [math.nan, "$number", {"$number": "nan"}]}
            committed = decide(study, state=None if turn == 20 else state)
            states.append(states[-1] if turn == 20 else state)
            study.record(committed.lease, close="interrupted")
        for number in range(1, 71):
            assert repr(study.sampler_state(before=number + 1)) == repr(states[number - 1])
        assert study.sampler_state(before=1) is None
        assert repr(study.sampler_state()) == repr(states[-1])

    def test_the_store_as_it_was_when_a_decision_was_taken(self, url):
        study = opened(url, max_epochs=4)
        seen = [study.load()]

        def look(_=None):
            seen.append(study.load())

        first = decide(study, to_epoch=4)
        look()
        look(study.record(first.lease, report(1, 4.0, 3.0)))
        look(study.enqueue(CONFIG, 2))
        second = decide(study, to_epoch=2, wish=1)
        look()
        look(study.record(first.lease, report(3, 2.0, 1.0), close="told"))
        look(study.record(second.lease, close="out_of_memory"))
        look(study.add_run(CONFIG, [1.0]))
        study = opened(url, max_epochs=6)
        look()
        third = decide(study, run=1, to_epoch=6)
        look()
        look(study.record(third.lease, report(5, 1.0), close="interrupted"))
        look(study.record(decide(study, run=1, to_epoch=6).lease, close="diverged"))
        assert [study.decision(n).basis for n in (1, 2, 3)] == [0, 3, 8]
        for then in seen:
            assert study.load(at=then.change) == replace(then, checkpoints=())
            assert study.load(known=then) == seen[-1]
        with pytest.raises(StudyError, match="changes 0 to"):
            study.load(at=99)

    def test_a_study_from_elsewhere_is_saved_whole_and_goes_on(self, url):
        store = Store(url)
        origin = store.create_or_open("origin", definition(max_epochs=4))
        origin.record(decide(origin, to_epoch=4).lease, report(1, 4.0, 3.0, seconds=(0.5, math.nan)), close="told")
        origin.record(decide(origin, to_epoch=2).lease, report(1, 9.0), close="diverged")
        origin.record(decide(origin, to_epoch=2).lease, close="out_of_memory")
        origin.record(decide(origin, to_epoch=2).lease, close="interrupted")
        origin.add_run(CONFIG, [2.0, 1.0])
        again = decide(origin, run=1, to_epoch=4)
        fresh = decide(origin, to_epoch=3, state={"a": [0.5]})
        origin.record(again.lease, report(3, 2.0))
        origin.enqueue(CONFIG, 2)
        origin.thaw(4, 3)
        then = origin.load()
        copy, leases = store.save("copy", then, origin.sampler_state())
        now = copy.load()
        assert repr((now.runs, now.pending, now.decisions, now.definition)) == repr(
            (then.runs, then.pending, then.decisions, then.definition)
        )
        assert [(w.run, w.config, w.to_epoch) for w in now.wishes] == [
            (w.run, w.config, w.to_epoch) for w in then.wishes
        ]
        assert copy.sampler_state() == {"a": [0.5]}
        assert set(leases) == {again.decision.number, fresh.decision.number}
        copy.record(leases[again.decision.number], report(4, 1.0), close="told")
        copy.record(leases[fresh.decision.number], close="interrupted")
        assert decide(copy, to_epoch=4).decision.number == then.decisions + 1
        past = copy.load(at=now.change)
        assert repr((past.runs, past.pending, past.decisions)) == repr((then.runs, then.pending, then.decisions))
        with pytest.raises(StudyError, match=r"a study 'copy' in .* already"):
            store.save("copy", then)
        with pytest.raises(StudyError, match="1 decisions cannot have led to these runs"):
            store.save("third", replace(then, decisions=1))
        assert [info.name for info in store.studies()] == ["origin", "copy"]

    # Events, writers and readers.

    def test_events_are_numbered_and_listed_in_order(self, url):
        study = opened(url)
        other = opened(url, name="other")
        for number in range(5):
            study.add_event("note", f"text {number}", run=1, epoch=2, details={"n": number})
            other.add_event("note", "elsewhere")
        found = study.events()
        assert [e.text for e in found] == [f"text {n}" for n in range(5)]
        assert [e.text for e in study.events(after=found[1].number, most=2)] == ["text 2", "text 3"]

    def test_many_writers_at_once_all_get_through(self, url):
        names = [f"writer {number}" for number in range(6)]
        opened(url)

        def write(name):
            study = Store(url).open("study")
            for number in range(15):
                study.add_event(name, str(number))

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        [t.start() for t in threads]
        [t.join() for t in threads]
        found = opened(url).events()
        for name in names:
            assert [e.text for e in found if e.kind == name] == [str(number) for number in range(15)]
        assert opened(url).load().change == 90

    def test_a_newer_schema_is_refused(self, url):
        store = Store(url)
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE freezethaw_meta SET value = '2'")
        with pytest.raises(StoreError, match=r"newer freezethaw \(schema version 2; this one knows 1\)"):
            Store(url)

    def test_a_reader_that_stays_open_stops_nobody(self, url):
        study = opened(url)
        lease = decide(study).lease
        with Store(url)._database.reading() as connection:
            count = "SELECT count(*) FROM freezethaw_epochs"
            assert connection.exec_driver_sql(count).scalar() == 0
            study.record(lease, report(1, 1.0, 2.0))
            assert connection.exec_driver_sql(count).scalar() == 0  # one consistent view
        assert len(study.load().runs[0].losses) == 2
