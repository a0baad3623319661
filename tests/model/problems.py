"""Random small problems for the comparisons with the dense twin."""

from __future__ import annotations

import numpy as np

from freezethaw.model.curves import Curves
from freezethaw.model.inference import draw_prior, sweep
from freezethaw.model.posterior import condition
from freezethaw.model.priors import LogNormal
from freezethaw.model.specification import Geometry, Specification

from .dense import Dense


def draw_values(parameters, rng):
    """One draw of all hyperparameters from their priors, as plain numbers."""
    return {name: float(draws[0]) for name, draws in draw_prior(parameters, rng, 1).items()}


def sweep_one(target, values, rng, chosen=None):
    """One sweep of a single chain."""
    swept = sweep(target, {name: np.array([v]) for name, v in values.items()}, rng, chosen)
    return {name: float(v[0]) for name, v in swept.items()}


def evidence_at(target, values):
    """Log evidence at plain numbers."""
    return float(target.log_evidence({name: np.array([v]) for name, v in values.items()})[0])


BASES = {1: ("level",), 2: ("level", "drop"), 3: ("level", "drop", "drift")}
BASES[4] = (*BASES[3], "late")


def dense_basis(q, alpha, beta, horizon, tilt=0.0):
    def fall(t):
        return (beta / (t + beta)) ** alpha

    def basis(t):
        t = np.asarray(t, float)
        drop = (fall(t) - fall(horizon)) / (fall(1.0) - fall(horizon)) - 0.5
        drift = np.log(np.minimum(t, horizon)) / np.log(horizon) - 0.5
        late = np.where(drift > 0, 2 * drift, 0.0)  # from the root of the horizon on
        columns = [1.0 + tilt * drop, drop, drift, late]
        return np.stack(columns[:q], axis=1)

    return basis


class Problem:
    """Runs drawn at random, with hyperparameters drawn at random, and both models of them."""

    def __init__(self, seed, q=None, thinned=False, gaps=False):
        rng = self.rng = np.random.default_rng(seed)
        self.q = q or int(rng.integers(1, 5))
        n_runs, self.dimensions, horizon = int(rng.integers(1, 31)), int(rng.integers(1, 5)), 30.0
        configs = rng.random((n_runs, self.dimensions))
        for n in range(1, n_runs):  # near-duplicates
            if rng.random() < 0.2:
                configs[n] = np.clip(configs[n - 1] + 1e-9 * rng.standard_normal(self.dimensions), 0, 1)
        counts = rng.integers(0, 31, n_runs)
        epochs = []
        for count in counts:
            t = np.arange(1.0, count + 1.0)
            if gaps and rng.random() < 0.5:
                t = np.sort(rng.choice(60, size=count, replace=False)) + 1.0
            epochs.append(t)
        losses = [rng.standard_normal() + rng.standard_normal() / np.sqrt(t + 1) for t in epochs]
        self.curves = Curves.of(configs, losses, epochs, dense_epochs=6 if thinned else None)
        self.values = self._draw(horizon)
        self.specification = Specification(
            name="test",
            basis=BASES[self.q],
            residual="decay",
            priors=dict.fromkeys(self.values, LogNormal(0.0, 1.0)),
            length_prior=LogNormal(0.0, 1.0),
            warp_prior=LogNormal(0.0, 1.0),
            horizon=horizon,
            mean_variance={"drift": 0.2},
        )
        self.horizon = horizon

    def _draw(self, horizon):
        rng = self.rng
        values = {"alpha": np.exp(0.5 * rng.standard_normal()), "beta": np.exp(rng.standard_normal())}
        values["noise"] = 10 ** rng.uniform(-7, 0)
        values["mean"] = rng.standard_normal()
        for name in BASES[self.q]:
            values[f"{name}.variance"] = np.exp(0.5 * rng.standard_normal())
        for d in range(self.dimensions):
            values[f"length.{d}"] = np.exp(0.7 * rng.standard_normal())
            values[f"warp.a.{d}"], values[f"warp.b.{d}"] = np.exp(0.5 * rng.standard_normal(2))
        if rng.random() < 0.5:
            values["luck"] = 10 ** rng.uniform(-3, 0.5)
        if rng.random() < 0.5:
            values["tilt"] = rng.standard_normal()
        return {name: float(v) for name, v in values.items()}

    def fast(self):
        return condition(self.curves, self.specification, self.values, Geometry.plain(self.dimensions))

    def points(self):
        """All observations as the dense twin takes them, and their losses."""
        seen, y = [], []
        for run in range(len(self.curves)):
            t, losses = self.curves.observed(run)
            seen += [(self.curves.configs[run], e, run) for e in t]
            y += list(losses)
        return seen, np.array(y)

    def dense(self, scales=None):
        v, q = self.values, self.q
        return Dense(
            basis=dense_basis(q, v["alpha"], v["beta"], self.horizon, v.get("tilt", 0.0)),
            residual=lambda t, u: (v["beta"] / (t[:, None] + u[None, :] + v["beta"])) ** v["alpha"],
            noise=v["noise"],
            means=np.array([v["mean"], 0.0, 0.0, 0.0])[:q],
            variances=np.array([v[f"{name}.variance"] for name in BASES[q]]),
            mean_variances=np.array([0.0, 0.0, 0.2, 0.0])[:q],
            lengths=[v[f"length.{d}"] for d in range(self.dimensions)],
            warps=[(v[f"warp.a.{d}"], v[f"warp.b.{d}"]) for d in range(self.dimensions)],
            scales=scales or {},
            luck=v.get("luck", 0.0),
        )
