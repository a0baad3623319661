"""Part of what every store does: studies are made, continued, listed and deleted, and any text is only text."""

from __future__ import annotations

import threading

import pytest

import freezethaw as ft
from freezethaw.errors import LeaseLost, StudyError
from freezethaw.records import BasketEntry, DecisionDraft
from freezethaw.store import Store, Watcher
from tests.store.small_study import CONFIG, SPACE, add_run, checkpoint, decide, definition, opened, report

NASTY = [
    "'; DROP TABLE freezethaw_studies; --",
    "../../etc/passwd",
    "100% of_it\\",
    '"quoted"',
    "雪 ❄",
    "a\nb\t",
    "$(id)",
]


class StudiesContract:
    """Needs a fixture `url` of an empty store."""

    def test_the_same_call_continues(self, url):
        first = opened(url)
        decide(first)
        again = opened(url)
        assert again.uid == first.uid
        assert again.load() == first.load()
        assert again.load().version == 1

    def test_tags_stay_if_a_call_does_not_mention_them(self, url):
        study = opened(url)
        study.set_tags(["雪", "first try", "雪"])
        before = study.load()
        assert before.definition["tags"] == ["雪", "first try"]
        again = opened(url)  # with a definition that says nothing of tags
        assert again.load() == before
        assert again.load().version == 1, "no decision depends on tags"
        wider = opened(url, max_epochs=20)
        assert (wider.load().version, wider.load().definition["tags"]) == (2, ["雪", "first try"])
        opened(url, name="other")
        with Store(url) as store:
            assert [info.tags for info in store.studies()] == [("雪", "first try"), ()]
        wider.set_tags([])
        assert wider.load().definition["tags"] == []

    @pytest.mark.parametrize("tags", ["mnist", 3, [3], [""], [" "], ["a,b"], ["a\nb"], ["x" * 51]])
    def test_wrong_tags_are_refused(self, url, tags):
        study = opened(url)
        with pytest.raises(StudyError, match=r"tags are a list|a tag is a text"):
            study.set_tags(tags)
        assert "tags" not in study.load().definition

    def test_two_who_create_at_once_get_the_same_study(self, url):
        barrier, uids = threading.Barrier(6), []

        def create():
            barrier.wait()
            uids.append(opened(url).uid)

        threads = [threading.Thread(target=create) for _ in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert len(uids) == 6
        assert len(set(uids)) == 1

    def test_changes_of_a_definition_are_accepted_and_recorded(self, url):
        opened(url)
        wider = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), units=ft.Int(1, 8))
        study = opened(url, space=wider.to_dict(), max_epochs=20, budget={"epochs": 200}, policy="random")
        now = study.load()
        assert now.version == 2
        assert ft.Space.from_dict(now.definition["space"]) == wider
        assert ft.Space.from_dict(study.definition(1)["space"]) == SPACE
        [event] = study.events()
        assert event.kind == "definition changed"
        for word in ("rate", "max_epochs: 10 to 20", "budget epochs: 100 to 200;", "policy"):
            assert word in event.text

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"space": ft.Space(rate=ft.Float(1e-3, 1.0, log=True)).to_dict()}, "removed: units=Int"),
            ({"space": ft.Space(SPACE.parameters, depth=ft.Int(1, 3)).to_dict()}, "added: depth=Int"),
            ({"max_epochs": 9}, "shrink from 10 to 9"),
            ({"direction": "maximize"}, "direction is 'minimize', not 'maximize'"),
            ({"seed": 1}, "seed is 0, not 1"),
        ],
    )
    def test_another_study_under_the_same_name_is_refused_with_the_difference(self, url, change, message):
        before = opened(url).load()
        with pytest.raises(StudyError, match=message):
            opened(url, **change)
        assert opened(url).load() == before

    def test_when_max_epochs_grows_finished_runs_can_continue(self, url):
        study = opened(url, max_epochs=2)
        study.record(decide(study, to_epoch=2).lease, report(1, 2.0, 1.0), close="told")
        added = add_run(study, CONFIG, [3.0, 2.0])
        assert [run.state for run in study.load().runs] == ["finished", "finished"]
        study = opened(url, max_epochs=4)
        assert [run.state for run in study.load().runs] == ["frozen", "finished"]
        with pytest.raises(StudyError, match="finished; only a frozen run"):
            decide(study, run=added, to_epoch=3)
        assert decide(study, run=1, to_epoch=4).decision.from_epoch == 2

    def test_studies_are_listed_and_deleted_whole(self, url):
        store = Store(url)
        two, one = (store.create_or_open(name, definition()) for name in ("two", "one"))
        lease = decide(one).lease
        one.record(lease, report(1, 1.0, 2.0), checkpoint(2, "a", "b", 3))
        one.request(None, CONFIG, 1)
        decide(two, state={"a": 1})
        assert [(i.name, i.runs, i.epochs, i.decisions) for i in store.studies()] == [
            ("two", 1, 0, 1),
            ("one", 1, 2, 1),
        ]
        store.delete("one")
        assert [info.name for info in store.studies()] == ["two"]
        for write in (
            lambda: one.record(lease, report(3, 1.0)),
            one.load,
            lambda: one.acquire_decision_lease(Watcher()),
        ):
            with pytest.raises((StudyError, LeaseLost), match="deleted"):
                write()
        with pytest.raises(LeaseLost, match="deleted"):
            one.beat(lease)
        fresh = store.create_or_open("one", definition())
        assert fresh.uid != one.uid
        assert fresh.load().runs == fresh.events() == fresh.checkpoints() == ()
        assert decide(fresh).lease == lease  # the same numbers, in another study
        with pytest.raises(LeaseLost, match="deleted"):  # its old worker does not write into its namesake
            one.record(lease, report(3, 1.0))
        with pytest.raises(StudyError, match=r"no study 'three'.*; it has 'two', 'one'"):
            store.open("three")
        with pytest.raises(StudyError, match="no study 'three'"):
            store.delete("three")

    @pytest.mark.parametrize("text", NASTY)
    def test_any_text_is_only_text(self, url, text):
        store = Store(url)
        store.create_or_open("other", definition())
        space = ft.Space({text: ft.Choice(text, "b")})
        study = store.create_or_open(text, definition(space=space.to_dict()))
        entry = BasketEntry(None, {text: text}, 0, 5, 0.5, 0.5)
        lease_to_decide = study.acquire_decision_lease(Watcher())
        proposal = DecisionDraft(None, {text: text}, 5, text, basket=(entry,))
        _, lease = study.commit(lease_to_decide, proposal, 0, {text: [1.0]})
        study.record(lease, report(1, 1.0, metrics=({text: 1.0},)), checkpoint(1, text, text, 1))
        study.add_event(text, text, details={text: text})
        assert store.open(text).load().runs[0].config == {text: text}
        stored = study.decision(1)
        assert (stored.decision.reason, stored.basket) == (text, (entry,))
        assert study.samples() == {text: [1.0]}
        assert study.metrics(1) == ({text: 1.0},)
        assert [(e.kind, e.text, e.details) for e in study.events()] == [(text, text, {text: text})]
        assert [c.place for c in study.checkpoints(1)] == [text]
        assert {info.name for info in store.studies()} == {"other", text}

    @pytest.mark.parametrize("name", ["", " ", "a\0b", "\ud800", "x" * 201, None, 3])
    def test_names_that_no_database_holds_are_refused(self, url, name):
        with pytest.raises(StudyError, match="name is a text of 1 to 200"):
            opened(url, name=name)

    def test_texts_that_no_database_holds_are_kept_readably(self, url):
        study = opened(url)
        decide(study, reason="a\0b \ud800")
        assert study.decision(1).decision.reason == "a\\0b \\ud800"
