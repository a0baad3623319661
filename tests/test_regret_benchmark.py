"""The regret benchmark: simulations on small made-up tables, records and report."""

from __future__ import annotations

import ast
import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import ablation, constants, ours, records, regret, report, simulate, spaces, tables
from benchmarks.ours import Setup, StudySimulator
from benchmarks.rivals.session import Session
from benchmarks.simulate import Simulation, SimulationEnded

import freezethaw as ft
from freezethaw.model.loss_units import LossUnits, Observations
from freezethaw.model.specification import Geometry
from freezethaw.policy import improvement_rate, surprise

needs_data = pytest.mark.skipif(tables.data_folder() is None, reason="no folder of real curves: set FREEZETHAW_DATA")
NAMES = np.array(["buffer_prio_sampling", "buffer_alpha", "learning_rate", "buffer_batch_size", "clip_eps"])
LABELS = {"buffer_prio_sampling": ["False", "True"]}
ROWS = np.array(
    [
        [0.0, np.nan, 1e-3, 16.0, 0.2],
        [1.0, 0.3, 1e-4, 64.0, 0.2],
        [1.0, 0.9, 1e-2, 32.0, 0.2],
    ]
)


def small_table(rows=12, epochs=5, seeds=1, seed=0, name="made/up"):
    rng = np.random.default_rng(seed)
    x = (np.arange(rows) + 0.5) / rows
    fall = np.exp(-np.arange(1, epochs + 1) / 2)
    losses = (x[:, None] + fall[None])[:, None] + 0.01 * rng.standard_normal((rows, seeds, epochs))
    losses[3, :, 2:] = np.nan
    space = ft.Space(x=ft.Float(0.0, 1.0))
    configs = tuple({"x": float(v)} for v in x)
    seconds = np.repeat((1 + 9 * x)[:, None], epochs, axis=1)
    return tables.Table(name, x[:, None], Geometry.plain(1), losses, seconds, space, configs)


@pytest.fixture
def made_up(monkeypatch):
    table = small_table()
    monkeypatch.setattr(ours.tables, "load", lambda: {table.name: table})
    return table


# Harder tables.


def test_a_slow_table_begins_with_plateaus_and_a_stepped_one_changes_rarely():
    table, rng = small_table(rows=40, epochs=20), np.random.default_rng(0)
    spread = np.ptp(table.losses[:, 0, 0])
    slow = tables.HARDER["slow"](table, rng)[:, 0]
    assert np.ptp(slow[:, :2]) < 0.2 * spread
    starts = (slow == table.losses[:, 0, :1]).argmax(axis=1)  # where each curve's own first loss comes
    assert 2 <= starts.min() < starts.max() <= round(tables.LATEST_START * 20)
    stepped = tables.HARDER["stepped"](table, rng)[:, 0]
    finite = np.isfinite(stepped).all(axis=1)
    assert (np.diff(stepped[finite]) == 0).mean() > 0.5
    assert np.isin(stepped[finite], table.losses).all()


def test_the_seeds_of_a_noisy_table_have_the_true_mean():
    table = small_table(rows=40)
    noisy = tables.HARDER["noisy"](table, np.random.default_rng(0))
    np.testing.assert_allclose(noisy.mean(axis=1), table.losses[:, 0])
    assert np.nanstd(noisy[:, 0] - noisy[:, 1]) > 0.2


@needs_data
def test_a_harder_table_is_found_by_name_and_always_the_same():
    name = regret.chosen_tables("slow-lcbench")[0]
    assert name.startswith("slow-lcbench/")
    np.testing.assert_array_equal(tables.find(name).losses, tables.find.__wrapped__(name).losses)


def test_errors_are_clustered_by_table():
    differences, names = np.array([1.0, 1.0, -1.0, -1.0]), ["a", "a", "b", "b"]
    assert report.clustered_error(differences, names) == pytest.approx(1.0)  # two tables, not four simulations
    assert report.clustered_error(differences, ["a"] * 4) == pytest.approx(differences.std(ddof=1) / 2)


# Spaces.


def test_arlbench_rows_become_configurations_with_conditions_labels_and_no_constant_column():
    space, configs = spaces.arlbench(NAMES, LABELS, ROWS)
    assert space.names == ("buffer_prio_sampling", "buffer_alpha", "learning_rate", "buffer_batch_size")
    assert configs[0] == {"buffer_prio_sampling": False, "learning_rate": 1e-3, "buffer_batch_size": 16}
    assert configs[1]["buffer_prio_sampling"] is True
    assert [space.validate(config) for config in configs] == configs
    assert space.parameters["learning_rate"] == ft.Float(1e-6, 0.1, log=True)
    assert space.parameters["buffer_batch_size"] == ft.Choice(16, 32, 64, ordered=True)


@needs_data
def test_each_row_of_each_simulation_is_a_configuration_that_finds_itself():
    for table in tables.load().values():
        if table.space is None:
            continue
        simulation = Simulation(table, 0, 10)
        assert len({table.space.key(c) for c in simulation.configs}) == len(simulation.configs) == len(simulation.shown)
        assert [simulation.nearest_unused(simulation.configs[row], set()) for row in (0, 7, 100)] == [0, 7, 100]


@needs_data
def test_the_features_of_unconditional_tables_are_those_of_the_forecast_benchmark():
    for table in (t for t in tables.load().values() if t.suite in ("taskset", "lcbench")):
        assert table.space.features_of(table.configs[:50]) == pytest.approx(table.features[:50], abs=1e-12)


# Simulations.


def test_regret_is_scaled_by_the_median_final_loss_and_follows_what_is_recommended():
    simulation = Simulation(small_table(), 0, 100)
    ends = simulation.true[np.isfinite(simulation.true[:, -1]), -1]
    loss = simulation.train(0)
    assert simulation.curve == [
        pytest.approx(min((loss - np.nanmin(simulation.true)) / (np.median(ends) - np.nanmin(simulation.true)), 1))
    ]
    for _ in range(4):
        simulation.train(0)
    assert simulation.curve[-1] == 0.0
    simulation.recommend(0, 1)
    assert simulation.curve[-1] == pytest.approx(simulation.curve[0])
    simulation.train(1)
    assert simulation.curve[-1] == simulation.curve[0], "a recommendation holds until the next one"


def test_no_regret_is_below_the_floor_of_short_runs():
    simulation = Simulation(small_table(), 0, 100)
    for row in range(12):
        simulation.train(row)
        simulation.train(row)
    assert simulation.curve[-1] == pytest.approx(simulation.floor(2)) != 0.0
    assert simulation.floor(simulation.table.epochs) == 0.0


def test_a_simulation_ends_with_its_budget_and_counts_what_diverges():
    simulation = Simulation(small_table(), 0, 4)
    for row in (3, 3, 3, 0):
        simulation.train(row)
    with pytest.raises(SimulationEnded):
        simulation.train(0)
    kept = simulation.result()
    assert kept["spent"] == 4
    assert (kept["runs"], kept["diverged"]) == (2, 1)
    assert kept["diverging"]["share"] == 0.75
    assert kept["diverging"]["random"] == pytest.approx(3 / (11 * 5 + 3), rel=1e-4)
    assert kept["diverging"]["random_runs"] == pytest.approx(1 / 12, rel=1e-4)


def test_milestones_of_seconds_are_multiples_of_the_mean_epoch(monkeypatch):
    monkeypatch.setattr(simulate, "AT", (1, 2, 3, 100))
    simulation = Simulation(small_table(), 0, 100)
    for _ in range(3):
        simulation.train(11)  # the slowest row: 9.6 s beside a mean of 5.5
    found = simulation.result()["regret_by_seconds"]
    assert set(found) == {"1", "2", "3"}
    assert found["1"] == 1.0, "nothing has ended by then"
    assert found["2"] == pytest.approx(simulation.curve[0], rel=1e-4)


@pytest.mark.parametrize("clock", ["epochs", "seconds"])
@pytest.mark.parametrize("workers", [1, 4])
def test_decisions_are_told_in_the_order_in_which_they_end(made_up, workers, clock):
    simulator = StudySimulator(Setup("made/up", 0, 20, policy="random", workers=workers, clock=clock))
    most, ends = 0, []
    tell = simulator._tell

    def watched():
        nonlocal most
        most = max(most, len(simulator.pending))
        first = min(simulator.pending)[0]
        tell()
        ends.append(simulator.now)
        assert simulator.now == first

    simulator._tell = watched
    record = simulator.run()
    assert most == workers
    assert ends == sorted(ends)
    if clock == "epochs":
        assert record["spent"] == 20
        assert record["runs"] == len(set(simulator.row_of.values()))
    else:
        assert simulator.simulation.elapsed >= simulator.limit
        assert all(run.seconds[0] > 0 for run in simulator.study.runs if run.losses)


def test_free_mode_maps_each_proposal_to_a_row_of_its_own_until_none_is_left(made_up):
    simulator = StudySimulator(Setup("made/up", 0, 60, mode="free", policy="random"))
    record = simulator.run()
    rows = list(simulator.row_of.values())
    assert len(rows) == len(set(rows)) <= len(simulator.simulation.configs)
    assert record["budget"] == 60
    assert set(record["regret"]) == {"25", "50"}


def test_a_metric_to_be_maximised_is_told_as_it_is_and_recommended_by_the_study(monkeypatch):
    table = small_table(seeds=3, name="arlbench/up")
    monkeypatch.setattr(ours.tables, "load", lambda: {table.name: table})
    simulator = StudySimulator(Setup(table.name, 0, 12, policy="random"))
    record = simulator.run()
    assert simulator.study.definition.direction == "maximize"
    assert all(loss < 0 for run in simulator.study.runs for loss in run.losses)
    best = simulator.study.recommended
    assert simulator.simulation.recommended == pytest.approx(
        simulator.simulation.true[simulator.row_of[best.run], best.epoch - 1]
    )
    assert record["policy"] == "random"


# Records.


def test_what_is_recorded_is_not_played_again_and_what_an_older_harness_recorded_is(made_up, tmp_path):
    setups = [Setup("made/up", seed, 5, policy="random", variant="coin") for seed in (0, 1)]
    regret.run(setups[:1], tmp_path, 1)
    (file,) = tmp_path.glob("*.json")
    assert file.name == "ours-coin-made-candidates-5.json"
    first = json.loads(file.read_text())
    regret.run(setups, tmp_path, 1)
    both = json.loads(file.read_text())
    assert both[0] == first[0], "not even its times have changed"
    assert [r["seed"] for r in both] == [0, 1]
    file.write_text(json.dumps([r | {"harness": records.HARNESS - 1} for r in both]))
    assert records.read(file) == []


def raw_records():
    found = [
        record("freezethaw", f"taskset/{t}", seed, {"25": 0.9, "50": 0.12346 + 0.1 * seed}, budget=300, version="v")
        | {"diverging": dict.fromkeys(records.SHARES, 0.25), "seconds": {"median": 0.1, "p99": 0.2}, "commit": "abc"}
        for t in "ab"
        for seed in (0, 2)
    ]
    rival = record("DEHB", "lcbench/1", 1, {"25": 1.0, "100": 0.5}, budget=1000, version="dehb 1")
    rival |= {"regret_by_seconds": {"50": 0.25}, "mapped": True}
    return [*found, rival, rival | {"mode": "free"}]


def test_a_summary_has_every_regret_and_one_group_for_both_modes_of_a_rival():
    summary = json.loads(json.dumps(records.summarise(raw_records())))
    assert [(g["method"], g["modes"]) for g in summary["groups"]] == [
        ("freezethaw", ["candidates"]),
        ("DEHB", ["candidates", "free"]),
    ]
    assert summary["groups"][0]["decision_seconds"] == {"median": 0.1, "p99": 0.2}
    found = records.expand(summary)
    assert len(found) == 6
    for old, new in zip(raw_records(), found, strict=True):
        assert all(new[key] == old[key] for key in ("method", "table", "seed", "mode", "budget"))
        for axis in records.AXES:
            assert new.get(axis) == (pytest.approx(old[axis], abs=5e-5) if axis in old else None)
    assert found[0]["diverging"] == pytest.approx(dict.fromkeys(records.SHARES, 0.25))
    assert report.gather(found, "taskset", "candidates", "regret")["freezethaw"][("taskset/a", 2)]["50"] == 0.3235


def test_published_records_are_replaced_by_method_suite_mode_and_budget(tmp_path):
    file, raw = tmp_path / "summary.json", tmp_path / "raw"
    records.write_summary(file, records.summarise(raw_records()))
    records.save(raw / "rival-dehb-lcbench-free.json", [raw_records()[-1] | {"regret": {"25": 0.125}}])
    records.publish(raw, file)
    found = {(r["method"], r["table"], r["seed"], r["mode"]): r["regret"] for r in records.published(file)}
    assert len(found) == 6
    assert found["DEHB", "lcbench/1", 1, "free"] == {"25": 0.125}
    assert found["DEHB", "lcbench/1", 1, "candidates"] == {"25": 1.0, "100": 0.5}


def test_labels_tell_kinds_of_simulations_apart():
    plain = Setup("made/up", 0)
    kinds = [
        plain,
        replace(plain, workers=8),
        replace(plain, clock="seconds"),
        replace(plain, policy="entropy_search"),
        replace(plain, policy="entropy_search", model="paper"),
        replace(plain, variant="drop"),
    ]
    assert len({k.label for k in kinds}) == len({k.method for k in kinds}) == len(kinds)
    assert plain.method == report.OURS


# The report.


def record(method, table, seed, regret, **more):
    return {"method": method, "table": table, "seed": seed, "mode": "candidates", "regret": regret, **more}


def test_the_report_pairs_simulations_and_reads_each_milestone_from_the_smallest_budget_that_has_it(capsys):
    found = []
    for seed in range(4):
        found.append(record(report.OURS, "taskset/a", seed, {"100": 0.1 + 0.1 * seed, "200": 0.1}, budget=300))
        found.append(record(report.OURS, "taskset/a", seed, {"100": 0.9, "1000": 0.01}, budget=1000))
        found.append(record(report.ASHA, "taskset/a", seed, {"100": 0.3 + 0.1 * seed, "200": 0.4}, budget=1000))
    found += [record("ifBO", f"taskset/{t}", -1, {"100": 0.5}) for t in "ab"]
    found += [record(report.OURS, "taskset/b", seed, {"100": 0.4}, budget=300) for seed in range(2)]
    for r in found:
        r["diverging"] = {"share": 0.1, "random": 0.2, "runs": 0.3, "random_runs": 0.4}
    summary = report.report(found, by_table=True)
    suite = summary["taskset, candidates, by epochs"]
    assert suite[report.OURS]["mean"]["1000"] == 0.01
    pair = suite[report.ASHA]["paired"]["100"]
    assert pair["difference"] == pytest.approx(0.2)
    assert pair["error"] == pytest.approx(0.0, abs=1e-9)
    assert pair["simulations"] == 4
    assert suite["ifBO"]["paired"]["100"] == {"difference": 0.175, "error": 0.075, "simulations": 2, "ratio": 0.65}
    assert summary["ratios"]["taskset"][f"{report.OURS} / {report.ASHA}"]["200"] == 0.25
    assert "taskset/a" in capsys.readouterr().out


# The session of a rival.


def test_a_rival_without_conditions_proposes_all_and_what_is_inactive_is_left_out():
    space, configs = spaces.arlbench(NAMES, LABELS, ROWS)
    table = tables.Table(
        "arlbench/up", np.zeros((3, 1)), Geometry.plain(1), np.ones((3, 1, 4)), space=space, configs=tuple(configs)
    )
    session = Session(Simulation(table, 0, 10), "free")
    for row in range(3):
        assert session.config(session.whole(row)) == configs[row]
    assert session.config(session.whole(0) | {"learning_rate": 0.1 + 1e-17})["learning_rate"] == 0.1
    rows = [session.row(session.whole(1)) for _ in range(3)]
    assert (rows[0], sorted(rows)) == (1, [0, 1, 2])
    with pytest.raises(SimulationEnded):
        session.row(session.whole(1))


def test_a_row_is_trained_up_to_an_epoch_and_not_beyond_where_it_diverges():
    session = Session(Simulation(small_table(), 0, 100), "candidates")
    assert session.train_up_to(0, 2) == session.simulation.shown[0, 1]
    assert session.simulation.spent == 2
    assert np.isnan(session.train_up_to(3, 5))
    assert session.simulation.done[3] == 3
    assert np.isnan(session.train_up_to(3, 5))
    assert session.simulation.spent == 5


# The ablation.


def test_the_middle_line_of_the_ablation_is_the_papers_model_with_the_robust_transform(made_up, monkeypatch):
    seen = []
    losses = np.r_[np.linspace(0.1, 0.2, 20), np.linspace(1.0, 30.0, 20)]
    observations = Observations(np.zeros((40, 1)), tuple((v,) for v in losses), Geometry.plain(1), 5.0)

    def look(simulator):
        transform = LossUnits.fit(observations, simulator.setup.model).transform
        seen.append(transform.to_model([0.1, 0.2, 15.0, 30.0]))
        return {}

    monkeypatch.setattr(StudySimulator, "run", look)
    paper, robust, _, _ = (Setup("made/up", 0, 5, **options) for options in ablation.LINES.values())
    for setup in (paper, robust, paper):
        ours.run_simulation(setup)
    assert np.array_equal(seen[0], seen[2]), "nothing is left behind"
    gaps = [(z[1] - z[0]) / (z[3] - z[2]) for z in seen]
    assert gaps[1] > 10 * gaps[0], "good losses are told apart, bad ones drawn together"


def test_the_ablation_pairs_each_line_with_the_one_above():
    regrets = dict(zip(ablation.LINES, (0.8, 0.5, 0.3, 0.2), strict=True))
    found = [
        record(Setup("", 0, **options).method, "taskset/a", seed, {"100": regrets[line] + 0.1 * seed}, budget=300)
        for line, options in ablation.LINES.items()
        for seed in range(3)
    ]
    lines = ablation.summarise(found, "taskset", "candidates")
    assert [entry["mean"]["100"] for entry in lines.values()] == pytest.approx([0.9, 0.6, 0.4, 0.3])
    assert [entry["gain"].get("100", {}).get("difference") for entry in lines.values()] == [None, 0.3, 0.2, 0.1]


def test_optuna_plays_a_conditional_table_with_names_that_differ_by_seed():
    pytest.importorskip("optuna")
    from benchmarks.rivals import optuna as optuna_rivals

    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(2, size=30), rng.random(30) * 0.9 + 0.05, 10 ** rng.uniform(-6, -1, 30)])
    rows[rows[:, 0] == 0, 1] = np.nan
    space, configs = spaces.arlbench(NAMES[:3], LABELS, rows)
    table = tables.Table(
        "arlbench/up", rows, Geometry.plain(3), rng.random((30, 1, 9)), space=space, configs=tuple(configs)
    )
    simulated = []
    for seed in (0, 0, 1):
        session = Session(Simulation(table, seed, 60), "free")
        with pytest.raises(SimulationEnded):
            optuna_rivals.tpe_hyperband(session)
        assert session.simulation.spent == 60
        simulated.append(session.simulation.done.tolist())
    assert simulated[0] == simulated[1] != simulated[2]


# Constants halved and doubled.


def test_a_changed_constant_holds_during_the_simulation_only(made_up, monkeypatch):
    seen = []
    monkeypatch.setattr(
        StudySimulator, "run", lambda simulator: seen.append((surprise.SURPRISE, improvement_rate.OLD_BASKET)) or {}
    )
    before = surprise.SURPRISE, improvement_rate.OLD_BASKET
    for short, factor in (("SURPRISE", 0.5), ("OLD_BASKET", 2.0)):
        ours.run_simulation(Setup("made/up", 0, 5, **constants.changed(short, factor)))
    assert seen == [(before[0] / 2, before[1]), (before[0], 2 * before[1])]
    assert before == (surprise.SURPRISE, improvement_rate.OLD_BASKET)


@pytest.mark.parametrize("name", constants.CONSTANTS)
def test_every_constant_is_looked_up_where_it_is_changed(name):
    """One that is bound as a default, or that another module took by name, would not change with this module's own."""
    module, short = name.rsplit(".", 1)
    assert hasattr(importlib.import_module(f"freezethaw.{module}"), short)
    for file in Path(ft.__file__).parent.rglob("*.py"):
        here = file.as_posix().endswith(f"freezethaw/{module.replace('.', '/')}.py")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and not here:
                assert short not in [alias.name for alias in node.names], file
            if isinstance(node, ast.arguments):
                bound = [d.id for d in (*node.defaults, *node.kw_defaults) if isinstance(d, ast.Name)]
                assert short not in bound, file


def test_a_constants_gain_is_over_the_default_in_the_same_simulations():
    half = Setup("", 0, **constants.changed("SPREAD", 0.5)).method
    found = [record(report.OURS, "taskset/a", seed, {"100": 0.5}, budget=300) for seed in range(4)]
    found += [record(half, "taskset/a", seed, {"100": 0.3 + 0.1 * seed}, budget=300) for seed in range(2)]
    lines = constants.summarise(constants.gather(found, ["taskset"], "candidates"), ["SURPRISE", "SPREAD"])
    assert list(lines) == ["SPREAD x 0.5"]
    assert lines["SPREAD x 0.5"]["simulations"] == 2
    assert lines["SPREAD x 0.5"]["mean"]["100"] == pytest.approx(0.35)
    assert lines["SPREAD x 0.5"]["gain"]["100"]["difference"] == pytest.approx(0.15)


def test_a_baseline_that_nobody_recorded_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["constants", "--report", "--baseline", "nobody", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        constants.main()
    assert "there is no method 'nobody'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # what was kept stays as it was


def test_suites_are_pooled_and_another_baseline_may_be_named():
    half, other = Setup("", 0, **constants.changed("SPREAD", 0.5)).method, "freezethaw (before)"
    found = [record(half, f"{suite}/a", 0, {"100": 0.3}, budget=300) for suite in ("taskset", "lcbench")]
    found += [record(other, f"{suite}/a", 0, {"100": 0.7}, budget=300) for suite in ("taskset", "lcbench")]
    simulations = constants.gather(found, ["taskset", "lcbench"], "candidates")
    assert constants.summarise(simulations, ["SPREAD"])["SPREAD x 0.5"]["gain"] == {}  # the default has no records
    line = constants.summarise(simulations, ["SPREAD"], other)["SPREAD x 0.5"]
    assert line["simulations"] == 2
    assert line["gain"]["100"]["difference"] == pytest.approx(0.4)
