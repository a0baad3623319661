"""Forecasts in the user's units: predictive distributions averaged over the hyperparameter samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.losses import Forecast, Transform
from freezethaw.model.curves import Array, Curves
from freezethaw.model.fantasies import PendingLosses, RunOrConfig, condition_on_pending, pending_losses
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.loss_units import DENSE_EPOCHS, Observations, gather, specify
from freezethaw.model.posterior import Points, Posterior, Prediction, condition


@dataclass(frozen=True)
class Forecaster:
    """The posterior at S hyperparameter samples, their weights, and the transform to the user's units."""

    transform: Transform
    weights: Array  # (S,)
    posterior: Posterior

    @classmethod
    def condition(cls, samples: HyperparameterSamples, observations: Observations) -> Forecaster:
        """Condition the model on the observations at every sample."""
        curves = gather(observations, samples.units.transform)
        spec = specify(samples.model, samples.units, observations.geometry, observations.horizon)
        posterior = condition(curves, spec, samples.stacked(), observations.geometry)
        return cls(samples.units.transform, samples.weights, posterior)

    def pending_losses(self, targets: Sequence[RunOrConfig], counts: Sequence[int]) -> list[PendingLosses]:
        """The next losses of runs (by index) or of configurations that are being started."""
        return pending_losses(self.posterior, targets, counts)

    def with_fantasies(self, fantasies: Sequence[tuple[RunOrConfig, PendingLosses]]) -> Forecaster:
        """The forecaster as if pending losses were known: of runs (by index), or of configurations being started.

        Each pending loss takes its expected value. This removes its uncertainty and leaves the means unchanged, so
        parallel decisions differ. New runs are appended to the others, in order.
        """
        if not fantasies:
            return self
        losses = [np.average(pending.mean, axis=0, weights=self.weights) for _, pending in fantasies]
        targets = [(target, y) for (target, _), y in zip(fantasies, losses, strict=True)]
        curves, runs = _continued(self.posterior.curves, targets)
        pending = [each for _, each in fantasies]
        return replace(self, posterior=condition_on_pending(self.posterior, curves, runs, pending, losses))

    def run(self, run: int, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of an old run at these epochs."""
        return self._mixture(self.posterior.losses(run, epochs, noise))

    def config(self, config: Array, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of a new run at these epochs."""
        return self._mixture(self.posterior.new_losses(config, epochs, noise))

    def out_of_sample(self, config: Array, losses: Sequence[float], epochs: Sequence[float]) -> Forecast:
        """Losses at these epochs of a run that is not among the curves, given its first losses."""
        z = self.transform.to_model(np.array(losses))
        seen = np.arange(1.0, len(z) + 1.0)
        return self._mixture(self.posterior.out_of_sample(config, seen, z, epochs))

    def points(self, points: Sequence[tuple[RunOrConfig, float]], noise: bool = True) -> Forecast:
        """Losses at (run, epoch) or (configuration, epoch) pairs."""
        parts = [
            self.posterior.points_of_run(int(target), [epoch], noise)
            if isinstance(target, int | np.integer)
            else self.posterior.points_of_config(target, [epoch], noise)
            for target, epoch in points
        ]
        return self._mixture(self.posterior.joint(Points.concatenate(parts)))

    def _mixture(self, prediction: Prediction) -> Forecast:
        """Components and samples (C, S, E) as one mixture of C S components."""
        scales = prediction.scales
        shape = scales.weights.shape
        parts = (
            self.weights[:, None] * scales.weights,
            np.broadcast_to(prediction.mean, shape),
            np.sqrt(prediction.component_variances),
            scales.freedoms,
        )
        return Forecast(self.transform, *(part.reshape(-1, shape[-1]) for part in parts))


def _continued(curves: Curves, losses: Sequence[tuple[RunOrConfig, Array]]) -> tuple[Curves, list[int]]:
    """The curves with these losses appended to runs, or as new runs; and the index of each run in them."""
    configs, runs = list(curves.configs), []
    observed = [curves.observed(run) for run in range(len(curves))]
    for target, more in losses:
        ahead = np.arange(1.0, len(more) + 1.0)
        if isinstance(target, np.ndarray):
            runs.append(len(configs))
            configs.append(target)
            observed.append((ahead, more))
        else:
            runs.append(target)
            seen, y = observed[target]
            observed[target] = np.append(seen, curves.last_epochs[target] + ahead), np.append(y, more)
    thinned = any(p.last_epochs.any() for p in curves.patterns)
    epochs, values = [t for t, _ in observed], [y for _, y in observed]
    return Curves.of(np.array(configs), values, epochs, DENSE_EPOCHS if thinned else None), runs
