"""The paper's model, whole: hyperparameters from the prior, losses from the model, and back by the sampler.

Both tests are exact for any length of chain, so nothing rests on a burn-in or on an estimate of the autocorrelation.

*Simulation-based calibration.* The hyperparameters that made the losses are one draw from the posterior. A chain that
runs forwards and backwards from them (a sweep backwards visits the hyperparameters in reverse order) is stationary, and
where the truth has a random place in it, its rank among all states is uniform (Besag and Clifford 1989).

*Geweke (2004).* Sweep given the losses, redraw the losses given the hyperparameters, and so on: the hyperparameters
keep the distribution of the prior. Many short chains from exact joint draws are compared, by their means, which are
independent of each other whatever the autocorrelation within each.

They catch a wrong density. The mutants are a forgotten Jacobian and wrong determinants, at the same budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import cumulative_simpson
from scipy.stats import chisquare, kstest, norm, ttest_1samp

from freezethaw.model import inference, pseudo_observations
from freezethaw.model.curves import Curves
from freezethaw.model.inference import Target
from freezethaw.model.priors import Horseshoe, LogNormal, Uniform
from freezethaw.model.specification import Geometry, paper

from .dense import correlation
from .problems import draw_values, sweep_one

RUNS, EPOCHS, DIMENSIONS = 5, 4, 2
SPECIFICATION, GEOMETRY = paper((-1.0, 1.0)), Geometry.plain(DIMENSIONS)
PARAMETERS = SPECIFICATION.parameters(GEOMETRY)
NAMES = [p.name for p in PARAMETERS]
KEPT, CAUGHT = 1e-3, 1e-4


def uniform_score(prior) -> Callable[[float], float]:
    """The prior's distribution function: it makes every hyperparameter uniform on (0, 1)."""
    if isinstance(prior, LogNormal):
        return lambda x: float(norm.cdf((math.log(x) - prior.location) / prior.scale))
    if isinstance(prior, Uniform):
        return lambda x: (x - prior.lower) / (prior.upper - prior.lower)
    assert isinstance(prior, Horseshoe)
    u = np.linspace(math.log(prior.floor) + 1e-9, 30.0, 4001)
    mass = cumulative_simpson([math.exp(prior.log_density(math.exp(v)) + v) for v in u], x=u, initial=0.0)
    return lambda x: float(np.interp(math.log(x), u, mass))


SCORES = {p.name: uniform_score(p.prior) for p in PARAMETERS}


def draw_curves(values, rng) -> Curves:
    """Configurations, and losses from the dense joint distribution at these values."""
    configs = rng.random((RUNS, DIMENSIONS))
    lengths = [values[f"length.{d}"] for d in range(DIMENSIONS)]
    warps = [(values[f"warp.a.{d}"], values[f"warp.b.{d}"]) for d in range(DIMENSIONS)]
    K_x = values["level.variance"] * correlation(configs, configs, lengths, warps)
    t = np.arange(1.0, EPOCHS + 1.0)
    K_t = (values["beta"] / (t[:, None] + t + values["beta"])) ** values["alpha"] + values["noise"] * np.eye(EPOCHS)
    K = np.kron(K_x, np.ones((EPOCHS, EPOCHS))) + np.kron(np.eye(RUNS), K_t)
    w, V = np.linalg.eigh(K)  # K may be singular to rounding: no Cholesky factor
    y = values["mean"] + V @ (np.sqrt(np.maximum(w, 0.0)) * rng.standard_normal(len(K)))
    return Curves.of(configs, y.reshape(RUNS, EPOCHS))


def ranks_of_truth(datasets, length, seed):
    """(datasets, parameters) ranks, 0 to `length` - 1, of the truth in a stationary chain through it."""
    rng = np.random.default_rng(seed)
    ranks = np.empty((datasets, len(NAMES)), dtype=int)
    for i in range(datasets):
        truth = draw_values(PARAMETERS, rng)
        target = Target(draw_curves(truth, rng), SPECIFICATION, GEOMETRY)
        place = int(rng.integers(length))
        states = []
        for steps, order in ((place, PARAMETERS[::-1]), (length - 1 - place, PARAMETERS)):
            state = truth
            for _ in range(steps):
                state = sweep_one(target, state, rng, [(p,) for p in order])
                states.append([state[name] for name in NAMES])
        ranks[i] = np.sum(np.array(states) < [truth[name] for name in NAMES], axis=0)
    return ranks


def calibration(datasets=120, length=5, seed=1):
    """p-values for each hyperparameter: ranks are uniform, and (a sharper question) right on average."""
    ranks = ranks_of_truth(datasets, length, seed)
    found = {}
    for name, column in zip(NAMES, ranks.T, strict=True):
        found[f"{name} uniform"] = chisquare(np.bincount(column, minlength=length)).pvalue
        z = (column.mean() - (length - 1) / 2) / math.sqrt((length**2 - 1) / 12 / datasets)
        found[f"{name} mean"] = 2 * norm.sf(abs(z))
    return found


def geweke(chains=48, length=12, seed=2):
    """p-values for each hyperparameter: first and second moments of the chains' means, and their last states."""
    rng = np.random.default_rng(seed)
    scores = np.empty((chains, length, len(NAMES)))
    for c in range(chains):
        values = draw_values(PARAMETERS, rng)
        for i in range(length):
            values = sweep_one(Target(draw_curves(values, rng), SPECIFICATION, GEOMETRY), values, rng)
            scores[c, i] = [SCORES[name](values[name]) for name in NAMES]
    found = {}
    for j, name in enumerate(NAMES):
        u = scores[:, :, j]
        for label, moment, expected in (("mean", u, 1 / 2), ("square", u**2, 1 / 3)):
            means = moment.mean(axis=1)
            found[f"{name} {label}"] = ttest_1samp(means, expected).pvalue
        found[f"{name} last"] = kstest(u[:, -1], "uniform").pvalue
    return found


def worst(p_values):
    """The smallest p-value, times how many there are."""
    return min(p_values.values()) * len(p_values)


# --- the mutants -----------------------------------------------------------------------------------------------------


def forget_the_jacobian(monkeypatch):
    """Takes the Jacobian of the logarithm, which `sweep` adds, back out again."""

    class Forgetful(Target):
        def evidence_of(self, summary, K, values):
            return super().evidence_of(summary, K, values) - sum(
                np.log(values[p.name]) for p in self.parameters if p.log
            )

    monkeypatch.setitem(globals(), "Target", Forgetful)


def count_the_determinant_of_the_coefficients(monkeypatch, times):
    """log |B| counted so many times."""

    def wrong(r, factor):
        return pseudo_observations.log_evidence(r, factor) - (times - 1) * np.log(
            np.einsum("sii->si", factor.lower)
        ).sum(axis=1)

    monkeypatch.setattr(inference, "log_evidence", wrong)


def forget_the_determinant_of_the_coefficients(monkeypatch):
    count_the_determinant_of_the_coefficients(monkeypatch, 0)


def double_the_determinant_of_the_coefficients(monkeypatch):
    count_the_determinant_of_the_coefficients(monkeypatch, 2)


def halve_the_determinant_over_epochs(monkeypatch):
    """sum_n log |K_tn| / 4 instead of / 2."""

    right = pseudo_observations.PseudoObservations.from_summary

    def wrong(summary, means, model):
        r = right(summary, means, model)
        return replace(r, log_density=r.log_density + 0.25 * summary.log_determinants.sum(axis=-1))

    monkeypatch.setattr(pseudo_observations.PseudoObservations, "from_summary", wrong)


@pytest.mark.slow
@pytest.mark.parametrize("check", [calibration, geweke])
def test_the_sampler_agrees_with_the_model(check):
    assert worst(check()) > KEPT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "mutant"),
    [
        (calibration, forget_the_jacobian),
        (geweke, forget_the_determinant_of_the_coefficients),
        (calibration, halve_the_determinant_over_epochs),
        (geweke, forget_the_jacobian),
        (geweke, double_the_determinant_of_the_coefficients),  # ranks see this one too, but not with every seed
        (geweke, halve_the_determinant_over_epochs),
    ],
)
def test_a_wrong_density_is_caught(check, mutant, monkeypatch):
    mutant(monkeypatch)
    assert worst(check()) < CAUGHT
