"""The paper's baseline: warped GP-EI with MCMC (Snoek, Swersky, Zemel, Adams 2014), on our own Gaussian process.

The number of epochs is one more hyperparameter, from 1 to the most; a run with T epochs costs T, and what is modelled
is its last loss. Warps, lengths, noise, amplitude and mean have the priors of the paper's appendix and are integrated
out by slice sampling; the next point maximises the expected improvement, averaged over the samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import freezethaw as ft
from experiments.bench import Bench
from freezethaw.decide.configurations import low_discrepancy, near
from freezethaw.losses import Transform
from freezethaw.model.curves import Curves
from freezethaw.model.inference import Chains, Target, draw_start, sweep
from freezethaw.model.posterior import Posterior, condition
from freezethaw.model.predictions import predict
from freezethaw.model.priors import Horseshoe, LogNormal, Uniform
from freezethaw.model.specification import PAPER_NOISE_FLOOR, Geometry, Specification
from freezethaw.policy.acquisition import expected_improvement

EPOCHS = "epochs"  # the hyperparameter that is added
FIRST = 3  # runs before there is a model
SAMPLES = 10
BURN_IN = 50  # sweeps before the first samples
EVEN, NEAR = 1000, 200  # points at which the improvement is first looked at: all over the cube, and near the best
ROUNDS, AROUND, LEADERS = 5, 100, 5  # then around the leaders, several times
NO_CURVE = 1e-12  # variance over epochs: every run is one number


def specification(lowest: float, highest: float) -> Specification:
    """A plain Gaussian process as a model of curves of one epoch: the level of a run, and noise."""
    standard = LogNormal(0.0, 1.0)
    return Specification(
        name="warped GP",
        basis=("level",),
        residual="smooth",
        priors={
            "level.variance": standard,
            "mean": Uniform(lowest, highest),
            "smooth.variance": Uniform(NO_CURVE, NO_CURVE),
            "smooth.length": Uniform(1.0, 1.0),
            "noise": Horseshoe(0.1, PAPER_NOISE_FLOOR),
        },
        length_prior=Uniform(0.0, 10.0),
        warp_prior=standard,
    )


@dataclass
class WarpedExpectedImprovement:
    """Ask where to look next; tell what was found there."""

    space: ft.Space  # the number of epochs included
    rng: np.random.Generator
    configs: list[Mapping[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    _values: Chains | None = None  # where the chain stands

    def ask(self) -> dict[str, Any]:
        """The next configuration."""
        if len(self.losses) < FIRST or not np.isfinite(self.losses).any():
            return dict(self.space.sample(self.rng))
        posterior, best = self._posterior()
        d = len(self.space)
        order = np.argsort(self.losses)[:LEADERS]
        centres = np.array([self.space.unit(self.configs[i]) for i in order])
        units = np.concatenate([low_discrepancy(EVEN, d, self.rng), near(centres, NEAR, self.rng)])
        score = self._improvement(units, posterior, best)
        for _ in range(ROUNDS):
            more = near(units[np.argsort(-score)[:LEADERS]], AROUND, self.rng)
            units = np.concatenate([units, more])
            score = np.concatenate([score, self._improvement(more, posterior, best)])
        return dict(self.space.config(units[score.argmax()]))

    def tell(self, config: Mapping[str, Any], loss: float) -> None:
        """The last loss of a run; one that is not finite counts as the worst of those that are."""
        self.configs.append(config)
        self.losses.append(loss)

    def _improvement(self, units: np.ndarray, posterior: Posterior, best: float) -> np.ndarray:
        """Expected improvement at these points, averaged over the samples."""
        found = predict(posterior, np.empty(0, dtype=np.int64), self.space.features_of_units(units), np.ones(1))
        mixed = found.weights * expected_improvement(best, found.mean, found.deviations)  # (C, S, P, 1)
        return mixed.sum(axis=0).mean(axis=0)[:, 0]

    def _posterior(self) -> tuple[Posterior, float]:
        """The posterior at several samples of the hyperparameters, and the lowest loss in model units."""
        losses = np.array(self.losses)
        losses[~np.isfinite(losses)] = losses[np.isfinite(losses)].max()
        y = Transform.fit(losses, blend=0.0).to_model(losses)  # zero mean, unit variance
        geometry = Geometry(self.space.lengths, self.space.warped)
        curves = Curves.of(self.space.features_of(self.configs), [[value] for value in y])
        target = Target(curves, specification(float(y.min()), float(y.max())), geometry)
        if self._values is None:
            self._values = draw_start(target, self.rng, 1)
            for _ in range(BURN_IN):
                self._values = sweep(target, self._values, self.rng)
        # the units have changed a little since the last time
        values = {p.name: np.asarray(p.prior.nearest(self._values[p.name])) for p in target.parameters}
        found = []
        for _ in range(SAMPLES):
            values = sweep(target, values, self.rng)
            found.append(values)
        self._values = values
        stacked = {name: np.concatenate([v[name] for v in found]) for name in values}
        return condition(curves, target.specification, stacked, geometry), float(y.min())


def warped_gp(bench: Bench) -> None:
    """Search until the budget is spent."""
    parameters = {**bench.space.parameters, EPOCHS: ft.Int(1, bench.epochs)}
    search = WarpedExpectedImprovement(ft.Space(parameters), np.random.default_rng([bench.seed, *b"baseline"]))
    while True:
        with bench.diary.thinking():
            found = search.ask()
        config = {name: value for name, value in found.items() if name != EPOCHS}
        search.tell(found, bench.train_up_to(bench.row(config), found[EPOCHS]))
