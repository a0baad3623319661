"""Random sequences of operations on each storage, against a model of dictionaries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from benchmarks.servers import fresh_database
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from freezethaw.errors import LeaseLost, StudyError, TellError
from freezethaw.records import DecisionDraft, Lease, Report
from freezethaw.store import MemoryStorage, Store, Watcher
from tests.store.small_study import CONFIG, add_run, checkpoint, definition

MAX_EPOCHS = 6


class Model:
    """What a store is, if nothing ever fails."""

    def __init__(self):
        self.runs = {}  # number -> [state, losses]
        self.tokens, self.holders, self.pending = {}, {}, {}  # run -> token; token in force or None; run -> to_epoch
        self.decisions = 0

    def decide(self, run, to_epoch):
        if run is None:
            run = len(self.runs) + 1
            self.runs[run] = ["frozen", []]
        state, losses = self.runs[run]
        assert state == "frozen"
        assert len(losses) < to_epoch <= MAX_EPOCHS
        self.decisions += 1
        self.runs[run][0], self.pending[run] = "pending", to_epoch
        return self.take(run)

    def take(self, run):
        self.tokens[run] = self.holders[run] = self.tokens.get(run, 0) + 1
        return run, self.tokens[run]

    def record(self, run, token, first, losses):
        assert self.holders.get(run) == token, "lost"
        assert 1 <= first <= len(self.runs[run][1]) + 1
        assert first + len(losses) - 1 <= self.pending[run]
        self.runs[run][1] += losses[len(self.runs[run][1]) - first + 1 :]

    def close(self, run, token, how):
        assert self.holders.get(run) == token, "lost"
        done = len(self.runs[run][1])
        ends = {"diverged": "diverged", "failed": "failed"}
        self.runs[run][0] = ends.get(how, "finished" if done == MAX_EPOCHS else "frozen")
        self.holders[run] = None
        del self.pending[run]


class Machine(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize()
    def begin(self):
        self.folder = tempfile.mkdtemp()
        self.study = self.new_study(definition(max_epochs=MAX_EPOCHS))
        self.model, self.known, self.seen, self.losses = Model(), None, [], 0

    def new_study(self, defined):
        return Store(Path(self.folder) / "x.db").create_or_open("study", defined)

    def teardown(self):
        if hasattr(self, "study"):
            self.study.close()
            shutil.rmtree(self.folder)

    def agree(self, ours, theirs, refusals):
        """Both do it, or both refuse; returns what both gave."""
        try:
            expected = theirs()
        except (AssertionError, KeyError):
            before = self.study.load()
            with pytest.raises(refusals):
                ours()
            assert self.study.load() == before
            return None
        return ours(), expected

    @rule(target=leases, run=st.none() | st.integers(1, 4), ahead=st.integers(0, MAX_EPOCHS + 1))
    def decide(self, run, ahead):
        if run is None and len(self.model.runs) >= 4:
            return Lease(1, 0, 1)
        lease, known = self.study.acquire_decision_lease(Watcher()), self.study.load()
        draft = DecisionDraft(run, CONFIG, ahead, "because")
        samples = {"n": [known.decisions, 0.5]}
        both = self.agree(
            lambda: self.study.commit(lease, draft, known.change, samples, keep_lease=True),
            lambda: self.try_decide(run, ahead),
            StudyError,
        )
        self.study.release(lease)
        if both is None:
            return Lease(1, 0, 1)  # a lease that was never given
        (decision, granted), (number, token) = both
        assert (granted.run, granted.token, decision.number) == (number, token, self.model.decisions)
        return granted

    def try_decide(self, run, ahead):
        if run is None:
            assert 0 < ahead <= MAX_EPOCHS
        return self.model.decide(run, ahead)

    @rule(lease=leases, first=st.integers(0, 4), count=st.integers(1, 3), save=st.booleans())
    def record(self, lease, first, count, save):
        """First counts back from the epoch that is due, so that most reports are right or nearly so."""
        due = len(self.model.runs.get(lease.run, ["", []])[1]) + 1
        first, losses = due + 1 - first, [float(self.losses + i) for i in range(count)]
        self.losses += count
        saved = checkpoint(first + count - 1) if save else None
        self.agree(
            lambda: self.study.record(lease, Report(first, tuple(losses)), saved),
            lambda: self.model.record(lease.run, lease.token, first, losses),
            (LeaseLost, TellError),
        )

    @rule(lease=consumes(leases), how=st.sampled_from(["interrupted", "diverged", "failed"]))
    def close(self, lease, how):
        self.agree(
            lambda: self.study.record(lease, close=how),
            lambda: self.model.close(lease.run, lease.token, how),
            (LeaseLost, TellError),
        )

    @precondition(lambda self: self.model.pending)
    @rule(target=leases)
    def take_over(self):
        """Whoever has watched long enough takes the first pending run; its holder may still try to write."""
        _, lease = self.study.take_over(watcher := Watcher(0.0)) or self.study.take_over(watcher)
        run, token = self.model.take(min(self.model.pending))
        assert (lease.run, lease.token) == (run, token)
        return lease

    @rule(losses=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=MAX_EPOCHS))
    @precondition(lambda self: len(self.model.runs) < 4)
    def add_run(self, losses):
        number = add_run(self.study, CONFIG, losses)
        self.model.runs[number] = ["finished", [loss + 0.0 for loss in losses]]

    @rule()
    def look(self):
        self.seen.append(self.study.load())

    @invariant()
    def agrees(self):
        if not hasattr(self, "study"):
            return
        now = self.study.load()
        assert {run.number: [run.state, list(run.losses)] for run in now.runs} == self.model.runs
        assert {d.run: d.to_epoch for d in now.pending} == self.model.pending
        assert now.decisions == self.model.decisions
        self.known = self.study.load(self.known)
        assert repr(self.known) == repr(now)  # increments add up to the whole
        assert self.known.runs == now.runs or repr(self.known.runs) == repr(now.runs)
        for then in self.seen[-3:]:
            assert repr(self.study.load(at=then.change).runs) == repr(then.runs)


class ServedMachine(Machine):
    server = ""

    def new_study(self, defined):
        return Store(fresh_database(self.server)).create_or_open("study", defined)


class MemoryMachine(Machine):
    def new_study(self, defined):
        return MemoryStorage("study", defined)


class TestMemory(MemoryMachine.TestCase):
    settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


class TestSqlite(Machine.TestCase):
    settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class TestPostgresql(ServedMachine.TestCase):
    settings = settings(max_examples=8, stateful_step_count=30, deadline=None)

    @pytest.fixture(autouse=True)
    def served(self, postgresql_server):
        ServedMachine.server = postgresql_server
