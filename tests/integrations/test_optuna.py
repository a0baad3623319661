"""Real studies of Optuna, in memory and in its own database files, become evidence."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from contextlib import closing

import pytest

import freezethaw as ft
from freezethaw.integrations.optuna import read_optuna

optuna = pytest.importorskip("optuna")
SPACE = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), optimizer=ft.Choice("sgd", "adam"))
EPOCHS = 20


def objective(trial):
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    slow = trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd"
    level = 0.1 * (math.log10(rate) + 2) ** 2
    for epoch in range(EPOCHS):
        loss = level + math.exp(-epoch / (6 if slow else 3))
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def searched(count=20, storage=None, name="old"):
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(study_name=name, storage=storage, sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=count)
    return study


def test_curves_are_those_of_the_trials():
    old = searched()
    curves = read_optuna(old)
    assert [curve.name for curve in curves] == [str(t.number) for t in old.trials]
    for curve, trial in zip(curves, old.trials, strict=True):
        assert curve.config == trial.params
        assert list(curve.losses) == [trial.intermediate_values[e] for e in sorted(trial.intermediate_values)]
    assert any(len(curve.losses) < EPOCHS for curve in curves), "nothing was pruned"


def test_a_study_begins_with_them_and_forecasts_sensibly():
    old = searched()
    study = ft.Study(SPACE, max_epochs=EPOCHS)
    runs = ft.import_optuna(old, into=study)
    assert [run.number for run in runs] == list(range(1, 21))
    assert all(run.added for run in runs)
    assert study.best.loss == pytest.approx(min(min(t.intermediate_values.values()) for t in old.trials), abs=0.05)
    for trial, run in zip(old.trials, runs, strict=True):
        if trial.state.name == "PRUNED":  # what would have come is known
            slow, level = trial.params["optimizer"] == "sgd", 0.1 * (math.log10(trial.params["rate"]) + 2) ** 2
            end = level + math.exp(-(EPOCHS - 1) / (6 if slow else 3))
            low, high = study.forecast(run.number).quantile([0.005, 0.995])[:, 0]
            assert low - 0.05 < end < high + 0.05
    assert study.ask().kind == "start"


def test_from_a_database_by_name(tmp_path):
    url = f"sqlite:///{tmp_path}/optuna.db"
    searched(5, url)
    assert len(read_optuna(url)) == 5
    searched(3, url, "other")
    with pytest.raises(ft.CurveError, match="choose a study with name"):
        read_optuna(url)
    with pytest.raises(ft.CurveError, match="no Optuna study 'third'"):
        read_optuna(url, "third")
    assert len(read_optuna(url, "other")) == 3


def pruned(count, storage):
    """A study of `count` pruned trials with 1 to 20 values each."""
    study = optuna.create_study(study_name="old", storage=storage)
    distributions = {
        "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adam"]),
    }
    study.add_trials(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.PRUNED,
            params={"rate": 10 ** (-4 * i / count), "optimizer": "sgd"},
            distributions=distributions,
            intermediate_values={e: 1 / (e + 1) + i / count for e in range(1 + i % EPOCHS)},
        )
        for i in range(count)
    )
    return study


@pytest.mark.slow
def test_two_hundred_pruned_trials_are_imported_quickly(tmp_path):
    """In a small part of the processor time in which Optuna writes them, so that it does not depend on the machine."""
    url = f"sqlite:///{tmp_path}/optuna.db"
    started = time.process_time()
    pruned(200, url)
    written = time.process_time() - started
    for store in (None, f"sqlite:///{tmp_path}/ours.db"):
        study = ft.Study(SPACE, max_epochs=EPOCHS, store=store)
        started = time.process_time()
        runs = ft.import_optuna(url, into=study)
        taken = time.process_time() - started
        print(f"200 pruned trials into {store or 'memory'}: {taken:.2f} s; Optuna wrote them in {written:.2f} s")
        assert len(runs) == 200
        assert taken < written / 2
        study.close()


def test_if_one_curve_does_not_fit_none_is_added():
    old = searched(5)
    for space, epochs, message in (
        (ft.Space(rate=ft.Float(1e-4, 1.0, log=True)), EPOCHS, "optimizer"),
        (ft.Space(rate=ft.Float(1e-2, 1.0, log=True), optimizer=ft.Choice("sgd", "adam")), EPOCHS, "rate"),
        (SPACE, EPOCHS - 1, "more than max_epochs = 19"),
    ):
        study = ft.Study(space, max_epochs=epochs)
        with pytest.raises(ft.FreezeThawError, match=message):
            ft.import_optuna(old, into=study)
        assert not study.runs
    with pytest.raises(ft.CurveError, match="has direction 'minimize', this one 'maximize'"):
        ft.import_optuna(old, into=ft.Study(SPACE, max_epochs=EPOCHS, direction="maximize"))


def test_wrong_sources_of_curves():
    study = ft.Study(SPACE, max_epochs=EPOCHS)
    with pytest.raises(ft.CurveError, match="expected an Optuna study"):
        ft.import_optuna(3, into=study)
    with pytest.raises(ft.CurveError, match="no trial of the Optuna study 'empty' has intermediate values"):
        ft.import_optuna(optuna.create_study(study_name="empty"), into=study)
    many = optuna.create_study(study_name="many", directions=["minimize", "minimize"])
    with pytest.raises(ft.CurveError, match="has 2 objectives"):
        ft.import_optuna(many, into=study)


def test_it_is_imported_only_where_it_is_called():
    code = "import sys, freezethaw as ft; ft.import_optuna, ft.forecast; print('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_pruned_trials_stay_recognisable_and_keep_their_attributes():
    old = searched()
    study = ft.Study(ft.Space.from_optuna(old), max_epochs=EPOCHS)
    runs = ft.import_optuna(old, into=study)
    assert [run.number for run in runs] == [trial.number + 1 for trial in old.trials]
    states = [run.metrics[-1]["optuna_state"] for run in study.runs]
    assert states == [trial.state.name for trial in old.trials]
    assert "PRUNED" in states
    table = study.to_dataframe()
    assert set(table["metric.optuna_state"].dropna()) == {"COMPLETE", "PRUNED"}
    attributed = optuna.create_study()
    attributed.add_trial(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.PRUNED, params={"rate": 0.1, "optimizer": "sgd"}, value=None,
            distributions=old.trials[0].distributions, intermediate_values={0: 1.0}, user_attrs={"note": "warm"},
        )
    )  # fmt: skip
    [run] = ft.import_optuna(attributed, into=ft.Study(SPACE, max_epochs=EPOCHS))
    assert run.metrics == ({"note": "warm", "optuna_trial": 0, "optuna_state": "PRUNED"},)


def test_an_empty_storage_is_reported(tmp_path):
    url = f"sqlite:///{tmp_path}/empty.db"
    optuna.storages.RDBStorage(url)
    with pytest.raises(ft.CurveError, match="the storage has no Optuna study"):
        ft.import_optuna(url, into=ft.Study(SPACE, max_epochs=EPOCHS))


def test_the_best_value_of_an_export_is_that_of_the_study_even_if_its_run_is_frozen():
    study = ft.Study(SPACE, max_epochs=10)
    study.add_run({"rate": 0.1, "optimizer": "sgd"}, [0.5] * 10)
    study.add_run({"rate": 0.2, "optimizer": "sgd"}, [0.4, 0.3, 0.6])
    assert ft.export_optuna(study).best_value == study.best.loss == 0.3


# And back.


def test_a_study_becomes_one_of_optuna_and_comes_back(tmp_path):
    space = ft.Space(
        {"rate": ft.Float(1e-4, 1.0, log=True), "optimizer": ft.Choice("sgd", "adam"), "layers": 2}
        | {"momentum": ft.Float(0.0, 0.9, when={"optimizer": "sgd"})}
    )
    study = ft.Study(space, max_epochs=3, name="mine", direction="maximize")
    for optimizer in ("sgd", "adam"):
        config = {"rate": 0.1, "optimizer": optimizer, "layers": 2} | ({"momentum": 0.5} if optimizer == "sgd" else {})
        study.add_run(config, [0.1, 0.2, 0.3] if optimizer == "sgd" else [0.2, 0.1])
    diverged = study.ask()
    study.tell(diverged, math.nan)
    study.ask()  # pending: left out
    storage = f"sqlite:///{tmp_path}/optuna.db"
    ft.export_optuna(study, storage)
    new = optuna.load_study(study_name="mine", storage=storage)
    assert [trial.state.name for trial in new.trials] == ["COMPLETE", "PRUNED", "FAIL"]
    assert (new.best_value, new.best_params) == (0.3, {"rate": 0.1, "optimizer": "sgd", "layers": 2, "momentum": 0.5})
    assert [trial.user_attrs["freezethaw_run"] for trial in new.trials] == [1, 2, 3]
    assert new.best_value == study.best.loss
    back = ft.Study(space, max_epochs=3, direction="maximize")
    ft.import_optuna(new, into=back)
    assert [(run.config, run.losses) for run in back.runs] == [(run.config, run.losses) for run in study.runs[:2]]
    new.optimize(lambda trial: trial.suggest_float("rate", 1e-4, 1.0, log=True), n_trials=1)


def test_a_run_outside_the_current_space_is_named(tmp_path):
    url = f"sqlite:///{tmp_path}/s.db"
    with closing(ft.Study(SPACE, max_epochs=3, store=url)) as wide:
        wide.add_run({"rate": 0.5, "optimizer": "sgd"}, [1.0])
    narrow = ft.Space(rate=ft.Float(1e-4, 0.1, log=True), optimizer=ft.Choice("sgd", "adam"))
    study = ft.Study(narrow, max_epochs=3, store=url)
    with closing(study), pytest.raises(ft.CurveError, match="Optuna does not accept run 1"):
        ft.export_optuna(study)
