"""The paper's decision (section 5): which next epoch is expected to tell most about where the minimum lies.

A basket of old and new runs with the highest expected improvement at the asymptote; P_min over the basket by Monte
Carlo; for each member its next loss is fantasised, and the one with the largest expected reduction of the entropy of
P_min wins. A loss is linear in the asymptotes plus noise, so a fantasy is a rank-one update of their joint posterior.
Beyond the paper: a reduction counts for each epoch paid, where taking a run up has a price or epochs differ in theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.posterior import Points, Posterior
from freezethaw.policy.basket import fill
from freezethaw.policy.choice import Choice, Entry, Options, best_so_far
from freezethaw.policy.improvement import expected_improvement
from freezethaw.policy.rate import epochs_to_grant

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

FANTASIES = 5
DRAWS = 1000  # of the joint asymptotes, for P_min


@dataclass(frozen=True)
class Joint:
    """Asymptotes of the basket and next losses of its members, under one sample."""

    mean: Array  # (K,) asymptotes
    covariance: Array  # (K, K)
    cross: Array  # (K, K) cov(asymptote i, next loss k)
    loss_variance: Array  # (K,)


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """The member of the basket whose next loss reduces the entropy of P_min most."""
    basket = fill(forecaster, options, rng)
    draws = rng.standard_normal((DRAWS, len(basket.choosable)))
    gain, chance, improvement = (np.zeros(len(basket.choosable)) for _ in range(3))
    bests = [best_so_far(posterior, options.max_epochs) for posterior in forecaster.posteriors]
    for posterior, best, weight in zip(forecaster.posteriors, bests, forecaster.weights, strict=True):
        joint = joint_of(posterior, basket.old, options.candidates[basket.new])
        gain += weight * entropy_reductions(joint, draws)
        chance += weight * p_min(joint.mean, joint.covariance, draws)
        improvement += weight * expected_improvement(best, joint.mean, np.sqrt(np.diag(joint.covariance)))
    worth = np.concatenate([_of_runs(basket.old, options, options.worth_old), options.worth_new[basket.new]])
    price = np.concatenate([_of_runs(basket.old, options, options.price_old), options.price_new[basket.new]])
    done = [int(forecaster.posteriors[0].curves.last_epochs[run]) for run in basket.old] + [0] * len(basket.new)
    granted = [epochs_to_grant(p, options.max_epochs - n) for p, n in zip(price, done, strict=True)]
    # what the next loss tells for each epoch paid: where taking a run up costs nothing, that is one
    scores = np.where(basket.choosable, gain * worth / (granted + price), -np.inf)
    improvement = np.where(basket.choosable, improvement, 0.0)  # what is finished improves nothing
    members = [(int(run), None) for run in basket.old] + [(None, int(place)) for place in basket.new]
    entries = [
        Entry(run, place, float(scores[k]), done[k] + 1, float(chance[k]), float(improvement[k]), granted[k])
        for k, (run, place) in enumerate(members)
    ]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), tuple(bests), "entropy")


def joint_of(posterior: Posterior, runs: IntArray, configs: Array) -> Joint:
    """Joint posterior of all asymptotes and next losses of old runs, and of new ones with these configurations."""
    end = posterior.specification.horizon
    done = posterior.curves.last_epochs
    parts = [posterior.points_of_run(int(run), [done[run] + 1.0, end]) for run in runs]
    parts += [posterior.points_of_config(config, [1.0, end]) for config in configs]
    prediction = posterior.joint(Points.together(parts))
    losses, asymptotes = np.arange(0, 2 * len(parts), 2), np.arange(1, 2 * len(parts), 2)
    C = prediction.covariance
    noise = posterior.time.noise * prediction.scales.mean[losses]
    return Joint(
        prediction.mean[asymptotes],
        C[np.ix_(asymptotes, asymptotes)],
        C[np.ix_(asymptotes, losses)],
        np.diag(C)[losses] + noise,
    )


def p_min(mean: Array, covariance: Array, draws: Array) -> Array:
    """(K,) chance of each asymptote to be the lowest, by common random draws (M, K)."""
    return np.asarray(_p_min(mean[None], factor(covariance), draws)[0])


def _p_min(means: Array, L: Array, draws: Array) -> Array:
    """(F, K) for several means that share a covariance."""
    values = means.T[:, :, None] + (L @ draws.T)[:, None, :]  # (K, F, M)
    wins = np.count_nonzero(values == values.min(axis=0), axis=2)  # twins that are lowest together share a draw
    return np.asarray((wins / wins.sum(axis=0)).T)


def factor(covariance: Array) -> Array:
    """Square root of a covariance that may be singular: negative eigenvalues from rounding count as zero."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def entropy(p: Array) -> Array:
    """-sum p log p over the last axis."""
    return np.asarray(-np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0), axis=-1))


def entropy_reductions(joint: Joint, draws: Array) -> Array:
    """(K,) expected reduction of the entropy of P_min by each member's next loss (equation 4, its sign mended)."""
    now = float(entropy(p_min(joint.mean, joint.covariance, draws)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(FANTASIES)
    weights = weights / weights.sum()
    reductions = np.zeros(len(joint.mean))
    for k in range(len(joint.mean)):
        step = joint.cross[:, k] / np.sqrt(joint.loss_variance[k])
        after = factor(joint.covariance - np.outer(step, step))
        means = joint.mean[None, :] + nodes[:, None] * step[None, :]
        reductions[k] = now - weights @ entropy(_p_min(means, after, draws))
    return reductions


def _of_runs(old: IntArray, options: Options, values: Array) -> Array:
    """What belongs to each of these runs; one for those that may not be chosen, whose scores do not count."""
    known = {int(run): value for run, value in zip(options.runs, values, strict=True)}
    return np.array([known.get(int(run), 1.0) for run in old])


def minimum_of_all(forecaster: Forecaster, runs: Sequence[int], rng: np.random.Generator, draws: int = 4000) -> Array:
    """(R,) the chance of each of these runs to have the lowest asymptote of them all."""
    noise = rng.standard_normal((draws, len(runs)))
    total = np.zeros(len(runs))
    for posterior, weight in zip(forecaster.posteriors, forecaster.weights, strict=True):
        prediction = posterior.asymptotes(list(runs))
        total += weight * p_min(prediction.mean, prediction.covariance, noise)
    return total
