"""Entropy search (paper: section 5, Algorithm 1): train the run whose next loss is most informative about the minimum.

The basket holds the old runs and new configurations with the highest expected improvement at the asymptote (section
5.2). P_min over the basket is estimated by Monte Carlo. Each member's next loss is fantasised, and the member with the
largest expected reduction of the entropy of P_min wins. A loss is linear in the asymptotes plus noise, so a fantasy is
a rank-one update of their joint posterior.

Beyond the paper: with many runs or candidates one hyperparameter sample selects those that are compared under all
samples; and the reduction is divided by the epochs paid, if switching runs has a cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import correlation
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.posterior import Points, Posterior
from freezethaw.model.predictions import Predict, predict, predict_upper_bound
from freezethaw.policy.acquisition import (
    Choice,
    Options,
    ScoredEntry,
    expected_improvement,
    incumbents,
)
from freezethaw.policy.costs import epochs_to_grant

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

OLD, NEW = 10, 3  # sizes of the basket (section 5.2)
FANTASIES = 5
TIE = 1e-5  # asymptotes closer than this share of the largest deviation are tied: rounding differs between processors
DRAWS = 1000  # of the joint asymptotes, for P_min
COMPARED_OLD, COMPARED_NEW = 30, 10  # at most this many are compared under all samples
SCREENED_OLD = 100  # at most this many runs are compared under one sample; an upper bound selects them
NEIGHBOUR = 0.95  # new configurations more correlated than this count as one maximum


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """Score the basket; the member whose next loss reduces the entropy of P_min most comes first."""
    basket = fill_basket(forecaster, options, rng)
    draws = rng.standard_normal((DRAWS, len(basket.allowed)))
    gain, chance, improvement = (np.zeros(len(basket.allowed)) for _ in range(3))
    best = incumbents(forecaster.posterior, options.max_epochs)
    joints = joint_of(forecaster.posterior, basket.old, options.candidates[basket.new])
    for s, weight in enumerate(forecaster.weights):
        joint = joints.sample(s)
        gain += weight * entropy_reductions(joint, draws)
        chance += weight * p_min(joint.mean, joint.covariance, draws)
        improvement += weight * expected_improvement(best[s], joint.mean, np.sqrt(np.diag(joint.covariance)))
    factor = np.concatenate(
        [_of_runs(basket.old, options, options.score_factor_old), options.score_factor_new[basket.new]]
    )
    cost = np.concatenate([_of_runs(basket.old, options, options.switch_cost_old), options.switch_cost_new[basket.new]])
    done = [int(forecaster.posterior.curves.last_epochs[run]) for run in basket.old] + [0] * len(basket.new)
    granted = [epochs_to_grant(c, options.max_epochs - n) for c, n in zip(cost, done, strict=True)]
    # the reduction per epoch paid; without switch costs that is one epoch
    scores = np.where(basket.allowed, gain * factor / (granted + cost), -np.inf)
    improvement = np.where(basket.allowed, improvement, 0.0)  # a run that may not be trained improves nothing
    members = [(int(run), None) for run in basket.old] + [(None, int(index)) for index in basket.new]
    entries = [
        ScoredEntry(run, index, float(scores[k]), done[k] + 1, float(chance[k]), float(improvement[k]), granted[k])
        for k, (run, index) in enumerate(members)
    ]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), tuple(best.tolist()), "entropy")


def _of_runs(old: IntArray, options: Options, values: Array) -> Array:
    """The value of each of these runs; one for runs that may not be chosen, whose scores do not count."""
    known = {int(run): value for run, value in zip(options.runs, values, strict=True)}
    return np.array([known.get(int(run), 1.0) for run in old])


@dataclass(frozen=True)
class Basket:
    """Members of one comparison: old runs by index among the curves, then candidates by index."""

    old: IntArray
    new: IntArray
    allowed: BoolArray  # whether each member may be chosen, old first
    improvements: Array  # expected improvement of each member at the asymptote, in model units


def fill_basket(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Basket:
    """Section 5.2: the highest expected improvements. At least one old run that may be chosen is included."""
    one = forecaster.posterior.sample(int(rng.choice(len(forecaster.weights), p=forecaster.weights)))
    runs, candidates = preselect(one, options)
    total = forecaster.weights @ asymptote_improvements(forecaster.posterior, runs, options.candidates[candidates])
    of_old, of_new = np.split(total, [len(runs)])
    old = best_with_one_allowed(of_old, np.isin(runs, options.runs), OLD)
    score = of_new * options.score_factor_new[candidates]
    new = distinct_maxima(score, one, options.candidates[candidates], NEW)
    allowed = np.concatenate([np.isin(runs[old], options.runs), np.ones(len(new), dtype=bool)])
    return Basket(runs[old], candidates[new], allowed, np.concatenate([of_old[old], of_new[new]]))


def preselect(posterior: Posterior, options: Options) -> tuple[IntArray, IntArray]:
    """Old runs and candidates with the highest expected improvement under one sample; all of them if they are few."""
    runs, candidates = np.arange(len(posterior.curves)), np.arange(len(options.candidates))
    if len(runs) > SCREENED_OLD:
        bounds = asymptote_improvements(posterior, runs, options.candidates[:0], predict_upper_bound)
        runs = runs[best_with_one_allowed(bounds, np.isin(runs, options.runs), SCREENED_OLD)]
    if len(runs) > COMPARED_OLD or len(candidates) > COMPARED_NEW:
        found = asymptote_improvements(posterior, runs, options.candidates)
        of_old, of_new = np.split(found, [len(runs)])
        runs = runs[best_with_one_allowed(of_old, np.isin(runs, options.runs), COMPARED_OLD)]
        candidates = distinct_maxima(of_new * options.score_factor_new, posterior, options.candidates, COMPARED_NEW)
    return runs, candidates


def asymptote_improvements(
    posterior: Posterior, runs: IntArray, candidates: Array, predict: Predict = predict
) -> Array:
    """(..., P) expected improvement of these runs, then of the candidates, on the lowest mean asymptote of the runs."""
    asymptotes = predict(posterior, runs, candidates, np.array([posterior.specification.horizon]))
    best = asymptotes.mean[..., : len(runs), 0].min(axis=-1)
    found = expected_improvement(best[..., None, None], asymptotes.mean, asymptotes.deviations)
    return np.asarray((asymptotes.weights * found).sum(axis=0)[..., 0])


def best_with_one_allowed(score: Array, allowed: BoolArray, count: int) -> IntArray:
    """Indices of the highest scores, best first; if none of them is allowed, the best allowed one replaces the last."""
    indices = np.argsort(-score, kind="stable")[:count]
    if allowed.any() and not allowed[indices].any():
        indices[-1] = np.where(allowed, score, -np.inf).argmax()
    return indices


def distinct_maxima(score: Array, posterior: Posterior, candidates: Array, count: int) -> IntArray:
    """The best candidates, skipping those too strongly correlated with one that was taken before."""
    inputs = posterior.new_inputs(candidates)
    free = np.ones(len(score), dtype=bool)
    found: list[int] = []
    while len(found) < count and free.any():
        best = int(np.where(free, score, -np.inf).argmax())
        found.append(best)
        free &= correlation(inputs, inputs[best : best + 1])[:, 0] < NEIGHBOUR
        free[best] = False
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True)
class Joint:
    """Asymptotes of the basket and next losses of its members."""

    mean: Array  # (..., K) asymptotes
    covariance: Array  # (..., K, K)
    cross: Array  # (..., K, K) cov(asymptote i, next loss k)
    loss_variance: Array  # (..., K)

    def sample(self, index: int) -> Joint:
        """Under one of S samples."""
        return Joint(self.mean[index], self.covariance[index], self.cross[index], self.loss_variance[index])


def joint_of(posterior: Posterior, runs: IntArray, configs: Array) -> Joint:
    """Joint posterior of the asymptotes and next losses of old runs, then of new runs with these configurations."""
    end = posterior.specification.horizon
    done = posterior.curves.last_epochs
    parts = [posterior.points_of_run(int(run), [done[run] + 1.0, end]) for run in runs]
    parts += [posterior.points_of_config(config, [1.0, end]) for config in configs]
    prediction = posterior.joint(Points.concatenate(parts))
    losses, asymptotes = slice(0, None, 2), slice(1, None, 2)
    C = prediction.covariance
    noise = posterior.time.noise[..., None] * prediction.scales.mean[..., losses]
    return Joint(
        prediction.mean[..., asymptotes],
        C[..., asymptotes, asymptotes],
        C[..., asymptotes, losses],
        prediction.variance[..., losses] + noise,
    )


def p_min(mean: Array, covariance: Array, draws: Array) -> Array:
    """(K,) probability that each asymptote is the lowest, by common random draws (M, K)."""
    return np.asarray(_p_min(mean[None], square_root(covariance), draws)[0])


def _p_min(means: Array, root: Array, draws: Array) -> Array:
    """(F, K) for several means that share a covariance, given its square root."""
    values = means.T[:, :, None] + (root @ draws.T)[:, None, :]  # (K, F, M)
    tie = TIE * np.sqrt((root**2).sum(axis=1).max())
    wins = np.count_nonzero(values <= values.min(axis=0) + tie, axis=2)  # ties count for each of the tied
    return np.asarray((wins / wins.sum(axis=0)).T)


def square_root(covariance: Array) -> Array:
    """The symmetric square root of a covariance that may be singular; negative eigenvalues from rounding count as zero.

    It is unique. Eigenvectors alone are not: their signs depend on the processor, and so would the decisions.
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def entropy(p: Array) -> Array:
    """-sum p log p over the last axis."""
    return np.asarray(-np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0), axis=-1))


def entropy_reductions(joint: Joint, draws: Array) -> Array:
    """(K,) expected reduction of the entropy of P_min by each member's next loss (equation 4 with its sign corrected).

    Fantasies are the nodes of a Gauss-Hermite rule over the next loss.
    """
    now = float(entropy(p_min(joint.mean, joint.covariance, draws)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(FANTASIES)
    weights = weights / weights.sum()
    reductions = np.zeros(len(joint.mean))
    for k in range(len(joint.mean)):
        step = joint.cross[:, k] / np.sqrt(joint.loss_variance[k])
        after = square_root(joint.covariance - np.outer(step, step))
        means = joint.mean[None, :] + nodes[:, None] * step[None, :]
        reductions[k] = now - weights @ entropy(_p_min(means, after, draws))
    return reductions


def p_min_of_runs(forecaster: Forecaster, runs: Sequence[int], rng: np.random.Generator, draws: int = 4000) -> Array:
    """(R,) probability that each of these runs has the lowest asymptote of them all, averaged over the samples."""
    noise = rng.standard_normal((draws, len(runs)))
    found = forecaster.posterior.asymptotes(list(runs))
    per_sample = [p_min(mean, C, noise) for mean, C in zip(found.mean, found.covariance, strict=True)]
    return np.asarray(np.average(per_sample, axis=0, weights=forecaster.weights))
