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
    """One posterior for each hyperparameter sample, with its weight, and the transform to the user's units."""

    transform: Transform
    weights: Array
    posteriors: tuple[Posterior, ...]

    @classmethod
    def condition(cls, samples: HyperparameterSamples, observations: Observations) -> Forecaster:
        """Condition the model on the observations at every sample."""
        curves = gather(observations, samples.units.transform)
        spec = specify(samples.model, samples.units, observations.geometry, observations.horizon)
        posteriors = tuple(condition(curves, spec, s, observations.geometry) for s in samples.values)
        return cls(samples.units.transform, samples.weights, posteriors)

    def pending_losses(self, targets: Sequence[RunOrConfig], counts: Sequence[int]) -> list[tuple[PendingLosses, ...]]:
        """The next losses of runs (by index) or of configurations that are being started, under every sample."""
        return list(zip(*(pending_losses(p, targets, counts) for p in self.posteriors), strict=True))

    def with_fantasies(self, fantasies: Sequence[tuple[RunOrConfig, tuple[PendingLosses, ...]]]) -> Forecaster:
        """The forecaster as if pending losses were known: of runs (by index), or of configurations being started.

        Each pending loss takes its expected value. This removes its uncertainty and leaves the means unchanged, so
        parallel decisions differ. New runs are appended to the others, in order.
        """
        if not fantasies:
            return self
        losses = [np.average([a.mean for a in each], axis=0, weights=self.weights) for _, each in fantasies]
        known = self.posteriors[0].curves
        curves, runs = _continued(known, [(target, y) for (target, _), y in zip(fantasies, losses, strict=True)])
        posteriors = tuple(
            condition_on_pending(p, curves, runs, [each[k] for _, each in fantasies], losses)
            for k, p in enumerate(self.posteriors)
        )
        return replace(self, posteriors=posteriors)

    def run(self, run: int, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of an old run at these epochs."""
        return self._mixture([p.losses(run, epochs, noise) for p in self.posteriors])

    def config(self, config: Array, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of a new run at these epochs."""
        return self._mixture([p.new_losses(config, epochs, noise) for p in self.posteriors])

    def out_of_sample(self, config: Array, losses: Sequence[float], epochs: Sequence[float]) -> Forecast:
        """Losses at these epochs of a run that is not among the curves, given its first losses."""
        z = self.transform.to_model(np.array(losses))
        seen = np.arange(1.0, len(z) + 1.0)
        return self._mixture([p.out_of_sample(config, seen, z, epochs) for p in self.posteriors])

    def points(self, points: Sequence[tuple[RunOrConfig, float]], noise: bool = True) -> Forecast:
        """Losses at (run, epoch) or (configuration, epoch) pairs."""
        predictions = []
        for p in self.posteriors:
            parts = [
                p.points_of_run(int(target), [epoch], noise)
                if isinstance(target, int | np.integer)
                else p.points_of_config(target, [epoch], noise)
                for target, epoch in points
            ]
            predictions.append(p.joint(Points.concatenate(parts)))
        return self._mixture(predictions)

    def _mixture(self, predictions: Sequence[Prediction]) -> Forecast:
        weights = [w * p.scales.weights for w, p in zip(self.weights, predictions, strict=True)]
        components = predictions[0].scales.weights.shape[0]
        return Forecast(
            self.transform,
            np.concatenate(weights),
            np.concatenate([np.repeat(p.mean[None], components, axis=0) for p in predictions]),
            np.sqrt(np.concatenate([p.component_variances for p in predictions])),
            np.concatenate([p.scales.freedoms for p in predictions]),
        )


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
