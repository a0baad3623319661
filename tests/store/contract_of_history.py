"""Part of what every storage does: the state at a decision can be read back, and events are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from freezethaw.errors import StudyError
from tests.store.small_study import CONFIG, add_run, decide, opened, report


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
                study = opened(url)  # another process continues
            if turn == 50:
                state = {**state, "anchor": [0.2] * 100, "new": [math.nan, "$number", {"$number": "nan"}]}
            committed = decide(study, state=None if turn == 20 else state)
            states.append(states[-1] if turn == 20 else state)
            study.record(committed.lease, close="interrupted")
        for number in range(1, 71):
            assert repr(study.samples(before=number + 1)) == repr(states[number - 1])
        assert study.samples(before=1) is None
        assert repr(study.samples()) == repr(states[-1])

    def test_the_store_as_it_was_when_a_decision_was_taken(self, url):
        study = opened(url, max_epochs=4)
        seen = [study.load()]

        def look(_=None):
            seen.append(study.load())

        first = decide(study, to_epoch=4)
        look()
        look(study.record(first.lease, report(1, 4.0, 3.0)))
        look(study.request(None, CONFIG, 2))
        second = decide(study, to_epoch=2, requests=(1,))
        look()
        look(study.record(first.lease, report(3, 2.0, 1.0), close="told"))
        look(study.record(second.lease, close="out_of_memory"))
        look(add_run(study, CONFIG, [1.0]))
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

    def test_events_are_numbered_and_listed_in_order(self, url):
        study = opened(url)
        other = opened(url, name="other")
        for number in range(5):
            study.add_event("note", f"text {number}", run=1, epoch=2, details={"n": number})
            other.add_event("note", "elsewhere")
        found = study.events()
        assert [e.text for e in found] == [f"text {n}" for n in range(5)]
        assert [e.text for e in study.events(after=found[1].number, most=2)] == ["text 2", "text 3"]
