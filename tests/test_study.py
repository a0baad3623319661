"""Ask and tell with the model deciding: reasons, determinism, wild losses, many workers."""

from __future__ import annotations

import math
import time
from collections import Counter

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.decide import inference_cache, plan
from freezethaw.decide.inference_cache import select, spread_out
from freezethaw.study import read, session_of

SPACE = ft.Space(
    rate=ft.Float(1e-4, 1.0, log=True),
    units=ft.Int(1, 64, log=True),
    kind=ft.Choice("a", "b", "c"),
    decay=ft.Float(0, 1),
)


def loss_of(config, epoch):
    """A curve that falls to a level which depends on the configuration."""
    level = (math.log10(config["rate"]) + 2) ** 2 / 4 + (config["kind"] == "b") * 0.3 + 0.2 * config["decay"]
    return level + 1.5 / (epoch + 1)


def advance(study, decisions, loss=loss_of):
    for _ in range(decisions):
        d = study.ask()
        study.tell(d, [loss(d.config, e) for e in range(d.from_epoch + 1, d.to_epoch + 1)])
    return study


def test_it_finds_good_configurations_and_says_why():
    study = advance(ft.Study(SPACE, max_epochs=10, seed=1), 80)
    assert study.best.loss < 0.35
    thaws = [r for r in study.runs if r.epoch > 1]
    assert thaws
    number = 60
    explained = study.explain(number)
    assert explained.decision.number == number
    assert explained.basket[0].run in (explained.decision.run, None)
    assert "chance to beat" in explained.decision.reason
    assert [e.score for e in explained.basket] == sorted((e.score for e in explained.basket), reverse=True)
    assert sum(study.p_min().values()) == pytest.approx(1.0)
    with pytest.raises(ft.StudyError, match="there is no decision 999"):
        study.explain(999)


def test_same_seed_same_tells_same_decisions_whoever_looks():
    def play(look):
        study = ft.Study(SPACE, max_epochs=10, seed=3)
        for _ in range(25):
            d = study.ask()
            study.tell(d, loss_of(d.config, d.to_epoch))
            if look:
                study.best, study.forecast(1), study.p_min()
        return [(r.config, r.losses) for r in study.runs]

    assert play(look=False) == play(look=True)


def test_forecasts_are_in_the_users_units():
    study = advance(ft.Study(SPACE, max_epochs=10, direction="maximize", seed=0), 30, lambda c, e: 100 - loss_of(c, e))
    run = max(study.runs, key=lambda r: r.epoch)
    end = study.forecast(run.number)
    low, high = end.quantile([0.05, 0.95])[:, 0]
    assert low <= end.mean[0] <= high  # equal if that epoch is measured
    assert 90 < end.mean[0] < 101
    new = study.forecast(dict(run.config), epochs=[1, 5])
    assert new.mean.shape == (2,)
    best = study.best
    assert best.loss == pytest.approx(best.expected, abs=0.2)
    np.testing.assert_array_equal(best.forecast.mean, study.forecast(best.run).mean)


@pytest.mark.parametrize(("candidates", "before"), [(None, 120), (100, 40)])
def test_64_asks_in_a_row_are_all_different(candidates, before):
    listed = None if candidates is None else [SPACE.sample(np.random.default_rng(i)) for i in range(candidates)]
    study = advance(ft.Study(SPACE, max_epochs=10, seed=2, candidates=listed), before)
    start = time.perf_counter()
    decisions = [study.ask() for _ in range(64)]
    seconds = time.perf_counter() - start
    print(f"64 asks without a tell: {seconds:.1f} s")
    assert len({d.run for d in decisions}) == 64
    keys = [SPACE.key(r.config) for r in study.runs]
    assert len(set(keys)) == len(keys), "a configuration was started twice"


WILD = {
    "mostly NaN": lambda rng, c, e: math.nan if rng.random() < 0.9 else rng.random(),
    "all NaN": lambda rng, c, e: math.nan,
    "all equal": lambda rng, c, e: 0.5,
    "1e34 next to 0.1": lambda rng, c, e: 1e34 if rng.random() < 0.3 else 0.1 + 0.01 * rng.random(),
    "only worse": lambda rng, c, e: 0.1 * e + rng.random(),
    "negative": lambda rng, c, e: -1e6 * rng.random(),
}


@pytest.mark.parametrize("kind", WILD)
def test_wild_losses_never_stop_a_study(kind):
    rng = np.random.default_rng(0)
    study = ft.Study(SPACE, max_epochs=8, seed=0)
    for _ in range(40):
        d = study.ask()
        study.tell(d, WILD[kind](rng, d.config, d.to_epoch))
    assert (study.best is None) == (kind == "all NaN")


@pytest.mark.parametrize("space", [ft.Space(x=ft.Float(0, 1)), ft.Space({f"x{i}": ft.Float(0, 1) for i in range(40)})])
def test_few_and_many_hyperparameters(space):
    study = ft.Study(space, max_epochs=5, seed=0)
    for _ in range(15):
        d = study.ask()
        study.tell(d, sum(d.config.values()) / d.to_epoch)
    assert study.best.loss <= min(r.losses[0] for r in study.runs if r.losses)


def test_one_epoch_only_and_a_space_that_runs_out():
    study = ft.Study(SPACE, max_epochs=1, candidates=[SPACE.sample(np.random.default_rng(i)) for i in range(3)])
    advance(study, 3)
    with pytest.raises(ft.StudyFinished, match="space exhausted"):
        study.ask()
    tiny = ft.Study(ft.Space(k=ft.Int(1, 3)), max_epochs=2)
    for _ in range(6):
        d = tiny.ask()
        tiny.tell(d, float(d.config["k"]))
    with pytest.raises(ft.StudyFinished, match="space exhausted"):
        tiny.ask()


def test_the_search_avoids_what_diverges():
    def diverges(config, epoch):
        return math.nan if config["rate"] > 0.1 else loss_of(config, epoch)

    runs = [
        run for seed in range(4, 10) for run in advance(ft.Study(SPACE, max_epochs=10, seed=seed), 60, diverges).runs
    ]
    diverged = sum(run.state == "diverged" for run in runs)
    uniform_share = 1 / 4  # of the log range of the rate; a search that did not care would be near 5 / 6
    assert diverged / len(runs) < 0.8 * uniform_share


def test_finish_best_trains_the_winner_with_the_rest():
    study = ft.Study(SPACE, max_epochs=10, seed=0, budget=40, finish_best=True)
    with pytest.raises(ft.StudyFinished):
        advance(study, 100)
    assert sum(r.epoch for r in study.runs) == 40
    # a run that became the best when less than its whole training was left got all of the rest
    assert study.runs[study.recommended.run - 1].epoch >= 9
    assert max(r.epoch for r in study.runs) >= 9


def test_half_of_a_small_budget_is_for_the_search():
    study = ft.Study(SPACE, max_epochs=10, seed=0, budget=10, finish_best=True)
    with pytest.raises(ft.StudyFinished):
        advance(study, 100)
    assert len(study.runs) > 1


def test_warm_start_from_curves_of_elsewhere():
    study = ft.Study(SPACE, max_epochs=10, seed=0)
    for i in range(10):
        config = SPACE.sample(np.random.default_rng(i))
        study.add_run(config, [loss_of(config, e) for e in range(1, 11)])
    before = len(study.runs)
    d = study.ask()
    assert d.kind == "start"
    assert d.run == before + 1
    assert np.isfinite(study.forecast(d.run if study.runs[d.run - 1].losses else 1).mean).all()


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("direction", "down"),
        ("policy", "lucky"),
        ("model", "cubic"),
        ("max_epochs", 0),
        ("max_epochs", "ten"),
        ("max_epochs", 2.5),
    ],
)
def test_unknown_settings_are_named(what, value):
    with pytest.raises(ft.StudyError, match=what):
        ft.Study(SPACE, **({"max_epochs": 5} | {what: value}))


@pytest.mark.parametrize(
    ("policy", "model"), [("entropy_search", "paper"), ("entropy_search", "drift"), ("random", "drift")]
)
def test_every_policy_plays(policy, model):
    study = advance(ft.Study(SPACE, max_epochs=6, seed=0, policy=policy, model=model), 15)
    assert len(study.runs) > 1
    assert all(study.explain(n).decision.reason for n in range(1, 16))


def test_beyond_the_largest_model_runs_are_selected_and_all_are_forecast(monkeypatch):
    monkeypatch.setattr(plan, "MOST_RUNS", 12)
    study = advance(ft.Study(SPACE, max_epochs=4, seed=0), 60)
    assert sum(bool(r.losses) for r in study.runs) > 12
    view = read(study).inference
    assert len(view.places) == 12
    assert view.dropped > 0
    best = study.recommended.run
    assert best in view.places
    for run in study.runs:
        if run.losses:
            assert np.isfinite(study.forecast(run.number).mean).all()


def test_selection_keeps_pending_best_and_fills_space():
    rng = np.random.default_rng(0)
    runs = [
        ft.Run(i + 1, {}, (float(v),), (1.0,), "pending" if i in (7, 50) else "frozen")
        for i, v in enumerate(rng.random(100))
    ]
    features = rng.random((100, 2))
    kept = select(runs, features, 1.0, 20)
    assert len(kept) == 20
    assert {8, 51} <= {r.number for r in kept}
    lowest = sorted(runs, key=lambda r: r.losses)[:8]
    assert {r.number for r in lowest} <= {r.number for r in kept}
    corners = np.array([[0.0, 0.0], [0.0, 0.01], [1.0, 1.0], [0.0, 1.0]])
    assert set(spread_out(corners, corners[:1], 2)) == {2, 3}


def test_expensive_configurations_are_trained_less():
    """Measured: 8 % of the epochs instead of 41 %. With given prices no decision depends on the clock."""

    def share(expensive):
        trained = {True: 0, False: 0}  # epochs of configurations with many units, and of the others
        for seed in range(4):
            study = ft.Study(SPACE, max_epochs=10, seed=seed, prices=ft.Prices())
            for _ in range(40):
                d = study.ask()
                many = d.config["units"] > 8
                study.tell(d, loss_of(d.config, d.to_epoch), seconds=expensive if many else 1.0)
                trained[many] += d.epochs
        return trained[True] / sum(trained.values())

    assert share(100.0) < 0.5 * share(1.0)


def test_a_decision_uses_one_thread():
    from threadpoolctl import threadpool_info

    from freezethaw.decide.inference_cache import one_thread

    with one_thread():
        assert all(pool["num_threads"] == 1 for pool in threadpool_info() if pool["user_api"] == "blas")


@pytest.mark.parametrize("policy", ["improvement_rate", "entropy_search"])
def test_a_study_ends_when_going_on_is_not_worthwhile(policy):
    """In the user's own units: a thousand times the loss needs a thousand times the threshold to end as early."""
    spent = {}
    for scale, worthwhile in ((1.0, 0.05), (1000.0, 50.0), (1.0, 1e-9)):
        budget = ft.Budget(epochs=60, worthwhile=worthwhile)
        study = ft.Study(SPACE, max_epochs=6, seed=0, budget=budget, policy=policy)
        with pytest.raises(ft.StudyFinished) as end:
            advance(study, 100, lambda c, e, scale=scale: scale * loss_of(c, e))
        spent[scale, worthwhile] = sum(r.epoch for r in study.runs), end.value.reason
    assert spent[1.0, 0.05][1].startswith("not worthwhile")
    assert spent[1.0, 0.05][0] < 60
    assert spent[1000.0, 50.0][1].startswith("not worthwhile")
    assert spent[1.0, 1e-9] == (60, "budget spent: 60 epochs")


def test_if_switching_is_expensive_fewer_decisions_grant_more():
    """The same search with prices: fewer changes of run, several epochs at once, and never beyond what is left."""

    def search(prices):
        study = ft.Study(ft.Space(x=ft.Float(0.0, 1.0)), max_epochs=20, seed=1, budget=60, prices=prices)
        granted, changes, last = [], 0, None
        while True:
            try:
                decision = study.ask()
            except ft.StudyFinished:
                break
            x = decision.config["x"]
            epochs = range(decision.from_epoch + 1, decision.to_epoch + 1)
            study.tell(decision, [(x - 0.3) ** 2 + 1 / e for e in epochs])
            granted.append(decision.epochs)
            changes += decision.run != last
            last = decision.run
        assert sum(granted) == 60
        return max(granted), changes

    most, changes = search(None)
    assert most == 1
    most_expensive, changes_expensive = search(ft.Prices(start=4.0, save=2.0, load=2.0))
    assert most_expensive >= 3
    assert changes_expensive < changes


def test_prices_that_make_no_sense_are_refused():
    with pytest.raises(ft.StudyError, match="save must be a non-negative number of seconds"):
        ft.Prices(save=-1.0)


def test_samples_for_many_runs_begin_with_some_and_know_all(monkeypatch):
    monkeypatch.setattr(inference_cache, "FIRST_RUNS", 8)
    study = ft.Study(SPACE, max_epochs=10, seed=0)
    for i in range(15):
        config = SPACE.sample(np.random.default_rng(i))
        study.add_run(config, [loss_of(config, e) for e in range(1, 6)])
    assert study.ask().kind == "start"
    assert set(study.p_min()) == set(range(1, 16))


def test_repeats_start_a_configuration_again_under_another_seed_and_configurations_are_judged():
    level = {"a": 0.50, "b": 0.45, "c": 0.60}
    luck = {"a": [-0.2, 0.1, 0.15, 0.12], "b": [0.01, -0.02, 0.03, 0.0], "c": [-0.05, 0.0, 0.05, 0.1]}
    study = ft.Study(ft.Space(x=ft.Choice(*level)), max_epochs=4, candidates=[{"x": x} for x in level], repeats=4)
    assert study.definition.model == "luck"
    ends = {}
    while True:
        try:
            d = study.ask()
        except ft.StudyFinished:
            break
        x = d.config["x"]
        if d.run not in ends:
            ends[d.run] = level[x] + luck[x].pop(0)
        study.tell(d, ends[d.run] + 1.0 / d.to_epoch)
    assert Counter(run.config["x"] for run in study.runs) == {"a": 4, "b": 4, "c": 4}
    assert len({session_of(study).training_seed(run.number) for run in study.runs}) == 12
    luckiest = min(study.runs, key=lambda run: min(run.losses))
    assert luckiest.config["x"] == "a"
    assert study.recommended.config["x"] == "b"


def test_repeats_must_be_a_whole_number():
    with pytest.raises(ft.StudyError, match="repeats must be a positive integer"):
        ft.Study(ft.Space(x=ft.Float(0.0, 1.0)), max_epochs=4, repeats=0)


def test_without_repeats_no_configuration_is_started_twice():
    study = ft.Study(ft.Space(x=ft.Int(1, 4)), max_epochs=2)
    while True:
        try:
            d = study.ask()
        except ft.StudyFinished:
            break
        study.tell(d, 1.0 / d.to_epoch + d.config["x"])
    assert sorted(run.config["x"] for run in study.runs) == [1, 2, 3, 4]


def test_where_the_budget_is_in_epochs_their_seconds_do_not_matter():
    def started(seconds, **named):
        study = ft.Study(SPACE, max_epochs=5, prices=ft.Prices(), **named)  # a busy machine takes longer to decide
        for _ in range(12):
            d = study.ask()
            study.tell(d, loss_of(d.config, d.to_epoch), seconds=seconds(d.config))
        return [run.config for run in study.runs]

    def uneven(config):
        return 1.0 + 100.0 * config["decay"]

    def even(config):
        return 1.0

    assert started(uneven, budget=100) == started(even, budget=100)
    assert started(uneven, budget=ft.Budget(training_hours=100)) != started(even, budget=ft.Budget(training_hours=100))


def test_a_stored_policy_that_is_gone_is_named(tmp_path):
    study = ft.Study(SPACE, max_epochs=4, store=tmp_path / "study.db")
    session_of(study).storage.amend({"policy": "mixed"})
    with pytest.raises(ft.StudyError, match="no policy 'mixed'; continue the study with one of improvement_rate"):
        study.ask()
    study.close()
    with ft.Study(SPACE, max_epochs=4, store=str(tmp_path / "study.db")) as again:
        assert again.ask().run == 1


def test_plain_dicts_and_paths_are_accepted_and_the_study_says_what_it_is(tmp_path):
    file = tmp_path / "study.db"
    with ft.Study({"x": ft.Float(0.0, 1.0)}, max_epochs=4, store=file) as study:
        study.tell(study.ask(), 0.5)
        assert repr(study) == "<Study 'study': 1 runs, 1 epochs, best loss 0.5>"
    with ft.Study.open(file) as opened:
        assert (opened.name, opened.best.loss) == ("study", 0.5)
    ft.Study({"x": ft.Float(0.0, 1.0)}, max_epochs=4, store=file, name="other").close()
    with pytest.raises(ft.StudyError, match="holds 2 studies; name one of 'study', 'other'"):
        ft.Study.open(file)


def test_best_is_the_lowest_measured_loss_and_recommended_the_lowest_expected():
    """One lucky epoch of a bad run is the best; the model recommends another."""
    study = ft.Study(ft.Space(x=ft.Choice("good", "bad")), max_epochs=8, seed=0)
    good = study.add_run({"x": "good"}, [1.0, 0.52, 0.41, 0.36, 0.33, 0.32, 0.31, 0.305])
    bad = study.add_run({"x": "bad"}, [1.4, 0.95, 0.86, 0.81, 0.2, 0.78, 0.77, 0.765])
    assert (study.best.run, study.best.epoch, study.best.loss) == (bad.number, 5, 0.2)
    assert study.recommended.run == good.number
    assert study.best.expected > 0.5
    assert study.recommended.expected < 0.4


def test_a_request_that_training_has_overtaken_is_dropped():
    """Thaw to epoch 3 is accepted while a pending decision goes to epoch 6: later it must not block the study."""
    study = ft.Study(SPACE, max_epochs=9, seed=0)
    study.enqueue(SPACE.sample(np.random.default_rng(0)), to_epoch=6)
    decision = study.ask()
    study.thaw(decision.run, 3)
    study.tell(decision, [1.0 / e for e in range(1, 7)])
    after = study.ask()
    assert (after.run, after.from_epoch) != (decision.run, 3)
    assert session_of(study).refresh().requests == ()


@pytest.mark.parametrize("wrong", [{"epochs": 2.5}, {"epochs": True}, {"training_hours": 0}, {"target": "low"}])
def test_a_budget_of_the_wrong_type_is_named(wrong):
    with pytest.raises(ft.StudyError, match=f"Budget: {next(iter(wrong))} must be"):
        ft.Budget(**wrong)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("max_epochs", "5"), ("budget", 4.5), ("seed", "a"), ("name", 3), ("candidates", 3), ("direction", "max"),
        ("finish_best", "yes"), ("repeats", 0), ("bounds", 1), ("metric", 2), ("policy", "best"), ("model", "none"),
    ],
)  # fmt: skip
def test_an_argument_of_the_wrong_type_is_named(argument, value):
    with pytest.raises(ft.StudyError, match=argument):
        ft.Study(**{"space": SPACE, "max_epochs": 5, argument: value})


@pytest.mark.parametrize(
    ("argument", "value"), [("workers", "2"), ("workers", 0), ("epoch_limit", "x"), ("timeout", "2h"), ("train", 3)]
)
def test_an_argument_of_tune_of_the_wrong_type_is_named(argument, value):
    with pytest.raises(ft.StudyError, match=argument):
        ft.tune(**{"train": lambda run: None, "space": SPACE, "max_epochs": 5, "budget": 5, argument: value})


def test_opening_a_study_that_is_not_there_creates_no_file(tmp_path):
    for store in (tmp_path / "none.db", str(tmp_path / "none.db"), f"sqlite:///{tmp_path}/none.db"):
        with pytest.raises(ft.StoreError, match="the file does not exist"):
            ft.Study.open(store)
    assert not list(tmp_path.iterdir())
