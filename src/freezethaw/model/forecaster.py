"""Forecasts in the user's units: a samples conditioned on the curves, and what it says of runs and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.losses import Forecast, Transform
from freezethaw.model.curves import Array, Curves
from freezethaw.model.fantasies import PendingLosses, condition_on_pending, pending_losses
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.loss_units import DENSE_EPOCHS, Observations, gather, specify
from freezethaw.model.posterior import Points, Posterior, Prediction, condition


@dataclass(frozen=True)
class Forecaster:
    """A samples conditioned on the curves: one posterior for each sample, and forecasts in the user's units."""

    transform: Transform
    weights: Array
    posteriors: tuple[Posterior, ...]

    @classmethod
    def condition(cls, samples: HyperparameterSamples, observations: Observations) -> Forecaster:
        """Condition every sample."""
        curves = gather(observations, samples.units.transform)
        spec = specify(samples.model, samples.units, observations.geometry, observations.horizon)
        posteriors = tuple(condition(curves, spec, s, observations.geometry) for s in samples.values)
        return cls(samples.units.transform, samples.weights, posteriors)

    def pending_losses(self, who: Sequence[int | Array], counts: Sequence[int]) -> list[tuple[PendingLosses, ...]]:
        """The next losses of runs (by index) or of configurations that are being started; of each for every sample."""
        return list(zip(*(pending_losses(p, who, counts) for p in self.posteriors), strict=True))

    def with_fantasies(self, fantasies: Sequence[tuple[int | Array, tuple[PendingLosses, ...]]]) -> Forecaster:
        """As if runs under way had been told what is awaited of each: of a run, or of a configuration being started.

        At their expected losses doubt is gone and nothing else changes, so the next decision looks elsewhere. New runs
        are put behind the others, in order.
        """
        if not fantasies:
            return self
        losses = [np.average([a.mean for a in each], axis=0, weights=self.weights) for _, each in fantasies]
        known = self.posteriors[0].curves
        curves, runs = _continued(known, [(who, y) for (who, _), y in zip(fantasies, losses, strict=True)])
        posteriors = tuple(
            condition_on_pending(p, curves, runs, [each[k] for _, each in fantasies], losses)
            for k, p in enumerate(self.posteriors)
        )
        return replace(self, posteriors=posteriors)

    def run(self, run: int, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Later losses of an old run."""
        return self._mixed([p.losses(run, epochs, noise) for p in self.posteriors])

    def config(self, config: Array, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of a new run."""
        return self._mixed([p.new_losses(config, epochs, noise) for p in self.posteriors])

    def out_of_sample(self, config: Array, losses: Sequence[float], epochs: Sequence[float]) -> Forecast:
        """Later losses of a run that is not among the curves."""
        z = self.transform.to_model(np.array(losses))
        seen = np.arange(1.0, len(z) + 1.0)
        return self._mixed([p.out_of_sample(config, seen, z, epochs) for p in self.posteriors])

    def points(self, points: Sequence[tuple[int | Array, float]], noise: bool = True) -> Forecast:
        """One loss each of several old runs (by index) and new configurations."""
        predictions = []
        for p in self.posteriors:
            parts = [
                p.points_of_run(int(who), [epoch], noise)
                if isinstance(who, int | np.integer)
                else p.points_of_config(who, [epoch], noise)
                for who, epoch in points
            ]
            predictions.append(p.joint(Points.concatenate(parts)))
        return self._mixed(predictions)

    def _mixed(self, predictions: Sequence[Prediction]) -> Forecast:
        weights = [w * p.scales.weights for w, p in zip(self.weights, predictions, strict=True)]
        components = predictions[0].scales.weights.shape[0]
        return Forecast(
            self.transform,
            np.concatenate(weights),
            np.concatenate([np.repeat(p.mean[None], components, axis=0) for p in predictions]),
            np.sqrt(np.concatenate([p.component_variances for p in predictions])),
            np.concatenate([p.scales.freedoms for p in predictions]),
        )


def _continued(curves: Curves, losses: Sequence[tuple[int | Array, Array]]) -> tuple[Curves, list[int]]:
    """Curves that go on with these losses, of runs or of configurations put behind them, and whose they are there."""
    configs, runs = list(curves.configs), []
    observed = [curves.observed(run) for run in range(len(curves))]
    for who, more in losses:
        ahead = np.arange(1.0, len(more) + 1.0)
        if isinstance(who, np.ndarray):
            runs.append(len(configs))
            configs.append(who)
            observed.append((ahead, more))
        else:
            runs.append(who)
            seen, y = observed[who]
            observed[who] = np.append(seen, curves.last_epochs[who] + ahead), np.append(y, more)
    thinned = any(p.last_epochs.any() for p in curves.patterns)
    epochs, values = [t for t, _ in observed], [y for _, y in observed]
    return Curves.of(np.array(configs), values, epochs, DENSE_EPOCHS if thinned else None), runs
