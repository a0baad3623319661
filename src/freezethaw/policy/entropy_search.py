"""The paper's decision (section 5): which next epoch is expected to tell most about where the minimum lies.

A basket of old and new runs with the highest expected improvement at the asymptote; P_min over the basket by Monte
Carlo; for each member its next loss is fantasised, and the one with the largest expected reduction of the entropy of
P_min wins. A loss is linear in the asymptotes plus noise, so a fantasy is a rank-one update of their joint posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import correlation
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.outlook import look
from freezethaw.model.posterior import Points, Posterior
from freezethaw.policy.choice import Choice, Entry, Options
from freezethaw.policy.improvement import expected_improvement

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

OLD, NEW = 10, 3  # sizes of the basket (section 5.2)
FANTASIES = 5
DRAWS = 1000  # of the joint asymptotes, for P_min
NEIGHBOUR = 0.95  # new configurations more correlated than this are one maximum, not two


@dataclass(frozen=True)
class Basket:
    """Members of one comparison: old runs by index among the curves, then candidates by index."""

    old: IntArray
    new: IntArray
    choosable: NDArray[np.bool_]  # for each member, old first


@dataclass(frozen=True)
class Joint:
    """Asymptotes of the basket and next losses of its members, under one sample."""

    mean: Array  # (K,) asymptotes
    covariance: Array  # (K, K)
    cross: Array  # (K, K) cov(asymptote i, next loss k)
    loss_variance: Array  # (K,)


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """The member of the basket whose next loss reduces the entropy of P_min most."""
    basket, incumbents, improvements = fill_basket(forecaster, options)
    draws = rng.standard_normal((DRAWS, len(basket.choosable)))
    gain = np.zeros(len(basket.choosable))
    chance = np.zeros_like(gain)
    for posterior, weight in zip(forecaster.posteriors, forecaster.weights, strict=True):
        joint = joint_of(posterior, basket, options)
        gain += weight * entropy_reductions(joint, draws)
        chance += weight * p_min(joint.mean, joint.covariance, draws)
    worth = np.concatenate([_worth_of(basket.old, options), options.worth_new[basket.new]])
    done = forecaster.posteriors[0].curves.last_epochs
    members = [(int(r), None, int(done[r]) + 1) for r in basket.old] + [(None, int(c), 1) for c in basket.new]
    scores = np.where(basket.choosable, gain * worth, -np.inf)
    entries = [
        Entry(run, candidate, float(score), to_epoch, float(p), float(ei))
        for (run, candidate, to_epoch), score, p, ei in zip(members, scores, chance, improvements, strict=True)
    ]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), incumbents)


def fill_basket(forecaster: Forecaster, options: Options) -> tuple[Basket, tuple[float, ...], Array]:
    """The highest expected improvement at the asymptote, averaged over samples.

    Returned with each sample's incumbent, and with the improvement of each member.
    """
    everyone = np.arange(len(forecaster.posteriors[0].curves))
    old, new = np.zeros(len(everyone)), np.zeros(len(options.candidates))
    incumbents = []
    for posterior, weight in zip(forecaster.posteriors, forecaster.weights, strict=True):
        end = np.array([posterior.specification.horizon])
        asymptotes = look(posterior, everyone, options.candidates, end)
        incumbents.append(float(asymptotes.mean[: len(old)].min()))
        found = weight * _mixed_improvement(incumbents[-1], asymptotes.mean, asymptotes.deviations, asymptotes.weights)
        old += found[: len(old)]
        new += found[len(old) :]
    chosen_old = np.argsort(-old, kind="stable")[:OLD]
    if len(options.runs) and not np.isin(chosen_old, options.runs).any():  # someone must be choosable
        chosen_old[-1] = options.runs[old[options.runs].argmax()]
    chosen_new = distinct_maxima(new * options.worth_new, forecaster.posteriors[0], options.candidates)
    choosable = np.concatenate([np.isin(chosen_old, options.runs), np.ones(len(chosen_new), dtype=bool)])
    improvements = np.concatenate([old[chosen_old], new[chosen_new]])
    return Basket(chosen_old, chosen_new, choosable), tuple(incumbents), improvements


def _mixed_improvement(best: float, mean: Array, deviations: Array, weights: Array) -> Array:
    return np.asarray((weights * expected_improvement(best, mean[None], deviations)).sum(axis=0)[:, 0])


def distinct_maxima(score: Array, posterior: Posterior, candidates: Array) -> IntArray:
    """The best candidates that are no neighbours of one another."""
    inputs = posterior.new_inputs(candidates)
    free = np.ones(len(score), dtype=bool)
    found: list[int] = []
    while len(found) < NEW and free.any():
        best = int(np.where(free, score, -np.inf).argmax())
        found.append(best)
        free &= correlation(inputs, inputs[best : best + 1])[:, 0] < NEIGHBOUR
        free[best] = False
    return np.array(found, dtype=np.int64)


def joint_of(posterior: Posterior, basket: Basket, options: Options) -> Joint:
    """Joint posterior of all asymptotes and next losses of the basket."""
    end = posterior.specification.horizon
    done = posterior.curves.last_epochs
    parts = [posterior.points_of_run(int(run), [done[run] + 1.0, end]) for run in basket.old]
    parts += [posterior.points_of_config(options.candidates[c], [1.0, end]) for c in basket.new]
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
    deviations = draws @ L.T  # (M, K)
    lowest = (means[:, None, :] + deviations[None]).argmin(axis=2)  # (F, M)
    counts = np.stack([np.bincount(row, minlength=means.shape[1]) for row in lowest])
    return np.asarray(counts / len(draws))


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


def _worth_of(old: IntArray, options: Options) -> Array:
    known = {int(run): s for run, s in zip(options.runs, options.worth_old, strict=True)}
    return np.array([known.get(int(run), 1.0) for run in old])


def minimum_of_all(forecaster: Forecaster, runs: Sequence[int], rng: np.random.Generator, draws: int = 4000) -> Array:
    """(R,) the chance of each of these runs to have the lowest asymptote of them all."""
    noise = rng.standard_normal((draws, len(runs)))
    total = np.zeros(len(runs))
    for posterior, weight in zip(forecaster.posteriors, forecaster.weights, strict=True):
        prediction = posterior.asymptotes(list(runs))
        total += weight * p_min(prediction.mean, prediction.covariance, noise)
    return total
