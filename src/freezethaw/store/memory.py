"""Storage in this process: no database, no files. It passes the same contract tests as the SQL storage.

Every method checks first and changes afterwards, so that a refused call changes nothing.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.records import (
    RECENT_DECISIONS,
    Checkpoint,
    Closing,
    Config,
    Decision,
    DecisionDraft,
    DecisionRecord,
    Event,
    History,
    Kind,
    Lease,
    Overheads,
    Recorded,
    Report,
    Request,
    Run,
    State,
    StudyState,
    closed_state,
)
from freezethaw.store import documents, rules
from freezethaw.store.storage import DECIDING, Definition, LeaseState, Process, Watcher

KEPT = 1000  # decisions whose baskets and samples are remembered
NOBODY = Process("", "", 0, "")
PAUSE = 0.01  # seconds until a thread asks again for the decision lease


@dataclass
class _Dated:
    """A value with the changes at which it was added and ended."""

    value: Any
    created: int
    ended: int | None = None

    def exists(self, at: int) -> bool:
        return self.created <= at and (self.ended is None or self.ended > at)


def _in_order(requests: Iterable[_Dated]) -> tuple[Request, ...]:
    """Requests of the user, then planned ones."""
    return tuple(sorted((r.value for r in requests), key=lambda r: (r.reason != "", r.number)))


def _overheads(decisions: Sequence[DecisionRecord]) -> Overheads:
    return Overheads.of([(d.seconds, d.saving) for d in decisions[-RECENT_DECISIONS:]])


class MemoryStorage:
    """One study in this process; safe for several threads."""

    def __init__(self, name: str, definition: Definition) -> None:
        self.name, self.uid = name, uuid.uuid4().hex
        self.durable = self.shared = False
        self._lock = threading.RLock()
        self._change = 0
        self._definitions = [_Dated(rules.checked_definition(definition), 0)]
        self._runs: list[Run] = []
        self._created: list[int] = []  # the change that added each run
        self._metrics: dict[int, list[Mapping[str, Any]]] = {}
        self._epochs: list[tuple[int, int, int]] = []  # change, run, epoch
        self._decisions: list[DecisionRecord] = []
        self._pending: dict[int, Decision] = {}
        self._samples: dict[int, Any] = {}  # by decision
        self._requests: list[_Dated] = []
        self._waiting: dict[int, _Dated] = {}  # requests that are not closed, by number
        self._checkpoints: list[_Dated] = []
        self._events: list[Event] = []
        self._leases = {DECIDING: LeaseState(DECIDING, 0, 0, False, 0, NOBODY)}
        self._state: StudyState | None = None  # until something changes

    def __repr__(self) -> str:
        return f"MemoryStorage({self.name!r})"

    def close(self) -> None:
        """Nothing to close."""

    # Reading.

    def load(self, known: StudyState | None = None, at: int | None = None) -> StudyState:  # noqa: ARG002
        """The state now, or at an earlier change."""
        with self._lock:
            if at is not None:
                return self._load_at(at)
            if self._state is None:
                last = self._decisions[-1] if self._decisions else None
                self._state = StudyState(
                    self._change,
                    len(self._definitions),
                    self._definitions[-1].value,
                    tuple(self._runs),
                    tuple(self._pending.values()),
                    len(self._decisions),
                    _in_order(self._waiting.values()),
                    tuple(c.value for c in self._checkpoints if c.ended is None),
                    last.decision.run if last is not None and last.state != "pending" else None,
                    _overheads(self._decisions),
                )
            return self._state

    def _load_at(self, at: int) -> StudyState:
        if not 0 <= at <= self._change:
            raise StudyError(f"the study has changes 0 to {self._change}, not {at!r}")
        version = max(v for v, d in enumerate(self._definitions, 1) if d.created <= at)
        definition = self._definitions[version - 1].value
        lengths = Counter(run for change, run, _ in self._epochs if change <= at)
        taken = [d for d in self._decisions if d.committed <= at]
        latest = {d.decision.run: d for d in taken}
        runs = []
        for run, created in zip(self._runs, self._created, strict=True):
            if created <= at:
                state, outcome = rules.state_at(
                    run, latest.get(run.number), lengths[run.number], at, definition["max_epochs"]
                )
                n = lengths[run.number]
                runs.append(replace(run, losses=run.losses[:n], seconds=run.seconds[:n], state=state, outcome=outcome))
        pending = tuple(d.decision for d in taken if rules.is_pending(d, at))
        return StudyState(
            at,
            version,
            definition,
            tuple(runs),
            pending,
            len(taken),
            _in_order(r for r in self._requests if r.exists(at)),
            tuple(c.value for c in self._checkpoints if c.exists(at)),
            taken[-1].decision.run if taken and not rules.is_pending(taken[-1], at) else None,
            _overheads(taken),
        )

    def change(self) -> int:
        """The study's change counter."""
        return self._change

    def definition(self, version: int) -> Definition:
        """One version of the definition."""
        definition: Definition = self._definitions[version - 1].value
        return definition

    def history(self, known: History | None = None) -> History:  # noqa: ARG002
        """All decisions and epochs."""
        with self._lock:
            decisions = tuple(replace(d, basket=()) for d in self._decisions)
            return History(self._change, decisions, tuple(self._epochs))

    def decision(self, number: int) -> DecisionRecord:
        """One decision with its basket."""
        with self._lock:
            if number not in range(1, len(self._decisions) + 1):
                raise rules.unknown_decision(number, len(self._decisions))
            return self._decisions[number - 1]

    def decisions(self, last: int, before: int | None = None) -> tuple[DecisionRecord, ...]:
        """The newest decisions, or the newest before another one, oldest first, without baskets."""
        with self._lock:
            end = len(self._decisions) if before is None else before - 1
            return tuple(replace(d, basket=()) for d in self._decisions[max(end - last, 0) : max(end, 0)])

    def deciding_seconds(self) -> float:
        """Seconds that all decisions took."""
        with self._lock:
            return sum(d.seconds for d in self._decisions if math.isfinite(d.seconds))

    def samples(self, before: int | None = None) -> Any:
        """The newest samples, or those that decision `before` started from; None if there are none."""
        with self._lock:
            numbers = [n for n in self._samples if before is None or n < before]
            return self._samples[max(numbers)] if numbers else None

    def metrics(self, run: int) -> tuple[Mapping[str, Any], ...]:
        """Other metrics of a run, one dict for each epoch."""
        return tuple(self._metrics.get(run, ()))

    def checkpoints(self, run: int | None = None) -> tuple[Checkpoint, ...]:
        """Checkpoints that exist, oldest first."""
        with self._lock:
            return tuple(c.value for c in self._checkpoints if c.ended is None and run in (None, c.value.run))

    def events(self, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
        """Events with a number greater than `after`, oldest first."""
        return tuple(self._events[after : after + most])

    def last_events(self, last: int) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        return tuple(self._events[-last:]) if last else ()

    def leases(self) -> tuple[LeaseState, ...]:
        """Leases that are held, and those of pending decisions that nobody holds."""
        with self._lock:
            return tuple(s for _, s in sorted(self._leases.items()) if s.held or s.decision)

    def last_holder(self, run: int) -> Process | None:
        """The process that holds the lease of a run, or held it last."""
        return self._leases[run].holder if run in self._leases else None

    # Leases.

    def acquire_decision_lease(self, watcher: Watcher) -> Lease | None:
        """The decision lease, if it is available now."""
        return self._take(self._leases[DECIDING], watcher)

    def wait_for_decision_lease(self, watcher: Watcher, pause: Callable[[float], object]) -> Lease:
        """The decision lease; only threads of this process can hold it."""
        while (lease := self.acquire_decision_lease(watcher)) is None:
            pause(PAUSE)
        return lease

    def take_over(self, watcher: Watcher) -> tuple[Decision, Lease] | None:
        """A pending decision whose worker is gone, with a new lease."""
        for seen in self.leases():
            lease = None if seen.run == DECIDING or not seen.decision else self._take(seen, watcher)
            if lease is not None:
                return self._decisions[lease.decision - 1].decision, lease
        return None

    def _take(self, seen: LeaseState, watcher: Watcher) -> Lease | None:
        if not watcher.may_take(self.uid, seen):
            return None
        with self._lock:
            if self._leases[seen.run] != seen:  # its holder sent a heartbeat, or another thread took it
                return None
            self._leases[seen.run] = replace(seen, token=seen.token + 1, beat=0, held=True, holder=watcher.here)
            if seen.held:
                self._advance()
                self._add_event("lease taken over", *rules.taken_over(seen))
            return Lease(seen.run, seen.token + 1, seen.decision)

    def beat(self, lease: Lease) -> None:
        """Advance the heartbeat counter."""
        with self._lock:
            state = self._held(lease)
            self._leases[lease.run] = replace(state, beat=state.beat + 1)

    def release(self, lease: Lease) -> None:
        """Release a lease; its decision stays pending."""
        with self._lock:
            self._leases[lease.run] = replace(self._held(lease), held=False)

    def _held(self, lease: Lease) -> LeaseState:
        state = self._leases.get(lease.run)
        if state is None or not state.held or state.token != lease.token:
            raise rules.lost_lease(lease, state)
        return state

    def _end(self, lease: Lease) -> None:
        self._leases[lease.run] = replace(self._leases[lease.run], held=False, decision=0)

    # Writing.

    def commit(
        self,
        decision_lease: Lease,
        draft: DecisionDraft,
        basis: int,
        samples: Any = None,
        keep_lease: bool = False,
        closing: Lease | None = None,
        checkpoint: Checkpoint | None = None,
        replaced: Sequence[int] = (),
    ) -> tuple[Decision, Lease]:
        """Commit a decision, the lease of its run and the samples after it; see the protocol."""
        with self._lock:
            held = self._held(decision_lease)
            closed = None if closing is None else self._checked_closing(closing, "told", None, checkpoint)
            self._check_draft(draft, closed)
            self._advance()
            self._leases[DECIDING] = replace(held, beat=held.beat + 1, held=keep_lease)
            if closing is not None and closed is not None:
                self._close(closing, "told", checkpoint, replaced)
            return self._committed(draft, basis, samples)

    def _check_draft(self, draft: DecisionDraft, closed: Run | None) -> None:
        rules.check_reason(draft.reason)
        documents.dump(dict(draft.config))  # refuses what a database could not keep
        for number in draft.requests:
            if number not in self._waiting:
                raise rules.not_waiting(number)
        for planned in draft.plan:
            documents.dump(dict(planned.config))
            rules.check_request(self._epoch(planned.run), planned.to_epoch, self._max_epochs)
        run = Run(len(self._runs) + 1, draft.config) if draft.run is None else self._run(draft.run)
        if closed is not None and closed.number == run.number:
            run = closed
        rules.check_advance(run, draft.to_epoch, self._max_epochs)

    def _committed(self, draft: DecisionDraft, basis: int, samples: Any) -> tuple[Decision, Lease]:
        if draft.run is None:
            self._runs.append(Run(len(self._runs) + 1, dict(draft.config)))
            self._created.append(self._change)
        run = self._runs[(draft.run or len(self._runs)) - 1]
        kind: Kind = "start" if run.epoch == 0 else "thaw"
        number, reason = len(self._decisions) + 1, documents.printable(draft.reason)
        decision = Decision(number, kind, run.number, run.config, run.epoch, draft.to_epoch, reason)
        version, change = len(self._definitions), self._change
        record = DecisionRecord(
            decision, basis, version, "pending", "", None, change, None, draft.basket, draft.seconds, draft.saving
        )
        self._decisions.append(record)
        self._pending[number] = decision
        self._runs[run.number - 1] = replace(run, state="pending", outcome="")
        if samples is not None:
            self._samples[number] = samples
        self._forget(number - KEPT)
        for closed in draft.requests:
            self._waiting.pop(closed).ended = change
        for planned in draft.plan:
            self._add_request(planned.run, planned.config, planned.to_epoch, planned.reason)
        before = self._leases.get(run.number)
        token = 1 if before is None else before.token + 1
        self._leases[run.number] = LeaseState(run.number, token, 0, True, number, Process.current())
        return decision, Lease(run.number, token, number)

    def _forget(self, number: int) -> None:
        """Drop the basket and the samples of an old decision."""
        if number >= 1:
            self._decisions[number - 1] = replace(self._decisions[number - 1], basket=())
            if len(self._samples) > 1:
                self._samples.pop(number, None)

    def record(
        self,
        lease: Lease,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
        close: Closing | None = None,
        replaced: Sequence[int] = (),
        deciding: Watcher | None = None,
    ) -> Recorded:
        """Record losses, the checkpoint that belongs to them, and the end of the decision; see the protocol."""
        with self._lock:
            self._checked_closing(lease, close, report, checkpoint)
            self._advance()
            held = self._leases[lease.run]
            self._leases[lease.run] = replace(held, beat=held.beat + 1)
            result = Recorded(self._change, self._runs[lease.run - 1].epoch)
            if report is not None and report.losses:
                result = self._write(lease.run, report)
            self._close(lease, close, checkpoint, replaced)
            return result if deciding is None else replace(result, decision_lease=self.acquire_decision_lease(deciding))

    def _checked_closing(
        self, lease: Lease, close: Closing | None, report: Report | None, checkpoint: Checkpoint | None
    ) -> Run:
        """The run as it will be; raises if anything may not be recorded."""
        rules.check_closing(close)
        self._held(lease)
        decision = self._pending.get(lease.decision)
        if decision is None:
            raise rules.closed_before(lease)
        run = self._runs[lease.run - 1]
        last = run.epoch
        if report is not None:
            report.check(run.epoch, decision.to_epoch)
            last = max(last, report.first_epoch + len(report.losses) - 1)
        rules.check_checkpoint(checkpoint, run.number, last)
        rules.check_has_loss(close, lease.decision, decision.from_epoch, last)
        if close is None:
            return run
        state, outcome = closed_state(close, last, self._max_epochs)
        return replace(run, state=state, outcome=outcome)

    def _write(self, number: int, report: Report) -> Recorded:
        run, first = self._runs[number - 1], report.first_epoch
        again = range(first, min(run.epoch, first + len(report.losses) - 1) + 1)
        different = tuple(e for e in again if report.losses[e - first] != run.losses[e - 1])
        if different:
            text, details = rules.differing_losses(number, report, {e: run.losses[e - 1] for e in different})
            self._add_event("loss differs", text, number, different[0], details)
        skip = max(run.epoch - first + 1, 0)
        losses = tuple(float(loss) + 0.0 for loss in report.losses[skip:])  # databases have no -0.0
        seconds = tuple(float(s) for s in (report.seconds or (math.nan,) * len(report.losses))[skip:])
        metrics = (report.metrics or ({},) * len(report.losses))[skip:]
        self._metrics.setdefault(number, []).extend(dict(m) for m in metrics)
        grown = replace(run, losses=run.losses + losses, seconds=run.seconds + seconds)
        self._runs[number - 1] = grown
        self._epochs += [(self._change, number, epoch) for epoch in range(run.epoch + 1, grown.epoch + 1)]
        return Recorded(self._change, grown.epoch, tuple(again), different)

    def _close(
        self, lease: Lease, close: Closing | None, checkpoint: Checkpoint | None, replaced: Sequence[int]
    ) -> None:
        """Record a checkpoint and the end of a decision."""
        if checkpoint is not None:
            number = len(self._checkpoints) + 1
            self._checkpoints.append(_Dated(replace(checkpoint, run=lease.run, number=number), self._change))
        self._drop(replaced, "replaced", lease.run)
        if close is None:
            return
        run, record = self._runs[lease.run - 1], self._decisions[lease.decision - 1]
        told = run.epoch > record.decision.from_epoch or close == "diverged"
        self._decisions[lease.decision - 1] = replace(
            record,
            state="told" if told else "cancelled",
            outcome=close,
            reached=run.epoch,
            closed=self._change,
        )
        state, outcome = closed_state(close, run.epoch, self._max_epochs)
        self._runs[lease.run - 1] = replace(run, state=state, outcome=outcome)
        del self._pending[lease.decision]
        self._end(lease)

    def add_runs(self, curves: Iterable[tuple[Config, Report]]) -> list[int]:
        """Add imported learning curves, all or none."""
        with self._lock:
            curves = list(curves)
            for config, report in curves:
                report.check_added(self._max_epochs)
                documents.dump(dict(config))
            self._advance()
            numbers = []
            for config, report in curves:
                number = len(self._runs) + 1
                state: State = "diverged" if report.diverged else "finished"
                self._runs.append(Run(number, dict(config), state=state, added=True))
                self._created.append(self._change)
                self._write(number, report)
                numbers.append(number)
            return numbers

    def drop_checkpoints(self, numbers: Iterable[int], why: str, holder: Lease | None = None) -> tuple[Checkpoint, ...]:
        """Mark checkpoints as replaced, evicted or damaged; those of leased runs stay, except the holder's."""
        with self._lock:
            rules.check_drop_reason(why)
            if holder is not None:
                self._held(holder)
            self._advance()
            return self._drop(numbers, why, None if holder is None else holder.run)

    def _drop(self, numbers: Iterable[int], why: str, holder: int | None) -> tuple[Checkpoint, ...]:
        leased = {s.run for s in self._leases.values() if s.decision} - {holder}
        gone = []
        known = range(1, len(self._checkpoints) + 1)
        for dated in (self._checkpoints[number - 1] for number in sorted(set(numbers)) if number in known):
            checkpoint: Checkpoint = dated.value
            if dated.ended is None and checkpoint.run not in leased:
                dated.ended = self._change
                gone.append(checkpoint)
                if why != "replaced":
                    self._add_event(*rules.dropped(checkpoint, why))
        return tuple(gone)

    def request(self, run: int | None, config: Config | None, to_epoch: int) -> int:
        """Queue a request to start a configuration or to thaw a run."""
        with self._lock:
            rules.check_request(self._epoch(run), to_epoch, self._max_epochs)
            self._advance()
            return self._add_request(run, config, to_epoch)

    def _epoch(self, run: int | None) -> int:
        return 0 if run is None else self._run(run).epoch

    def _add_request(self, run: int | None, config: Config | None, to_epoch: int, reason: str = "") -> int:
        number = len(self._requests) + 1
        wanted = dict(config or {}) if run is None else self._run(run).config
        added = _Dated(Request(number, run, wanted, to_epoch, reason), self._change)
        self._requests.append(added)
        self._waiting[number] = added
        return number

    def amend(self, changes: Definition) -> None:
        """Change entries of the definition: a new version."""
        with self._lock:
            amendment = rules.amend(self._definitions[-1].value, {**self._definitions[-1].value, **changes}, self.name)
            if not amendment:
                return
            self._advance()
            self._definitions.append(_Dated(amendment.definition, self._change))
            for place, run in enumerate(self._runs):
                if run.state == "finished" and not run.added and run.epoch < self._max_epochs:
                    self._runs[place] = replace(run, state="frozen")
            self._add_event(*amendment.event)

    def set_tags(self, tags: Iterable[str]) -> None:
        """Replace the study's tags."""
        self._set(rules.TAGS, rules.checked_tags(tags))

    def set_disk_budget(self, gb: float | None) -> None:
        """Record the disk budget of the checkpoints."""
        if self._definitions[-1].value.get(rules.DISK) != gb:
            self._set(rules.DISK, gb)

    def set_training(self, training: Mapping[str, str]) -> None:
        """Record the name and the hash of what trains the study."""
        self._set(rules.TRAINING, dict(training))

    def _set(self, key: str, value: object) -> None:
        """Change an entry of the definition on which no decision depends: no new version."""
        with self._lock:
            self._advance()
            self._definitions[-1].value = {**self._definitions[-1].value, key: value}

    def add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> None:
        """Record an event; `once`: unless the newest one of its kind has the same details."""
        with self._lock:
            newest = next((e for e in reversed(self._events) if e.kind == documents.printable(kind)), None)
            if once and newest is not None and newest.details == dict(details or {}):
                return
            self._advance()
            self._add_event(documents.printable(kind), text, run, epoch, details)

    def _add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        number = len(self._events) + 1
        shown = documents.printable(text)
        self._events.append(Event(number, kind, shown, run, epoch, dict(details or {}), documents.now()))

    def _advance(self) -> None:
        """Count one more change."""
        self._change += 1
        self._state = None

    @property
    def _max_epochs(self) -> int:
        return int(self._definitions[-1].value["max_epochs"])

    def _run(self, number: int) -> Run:
        if number not in range(1, len(self._runs) + 1):
            raise rules.unknown_run(number, len(self._runs))
        return self._runs[number - 1]
