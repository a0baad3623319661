"""Reusing a Cholesky factor when few runs have changed, or when rows are appended. Not in the paper.

A decision changes one or two runs. The pseudo-observations are kept in the order in which their runs last changed, so
the rows that change next are usually near the end, and the factor of all rows before the first changed one is reused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import run_correlation
from freezethaw.model.curves import Array, Curves, IntArray
from freezethaw.model.linear import cholesky, solve_lower
from freezethaw.model.posterior import Posterior, condition
from freezethaw.model.pseudo_observations import Factor, PseudoObservations, log_evidence
from freezethaw.model.specification import Geometry, Specification, Values
from freezethaw.model.summaries import Summary, summarise

BoolArray = NDArray[np.bool_]


def recondition(
    previous: Posterior | None,
    curves: Curves,
    specification: Specification,
    values: Values,
    geometry: Geometry | None = None,
    summary: Summary | None = None,
) -> Posterior:
    """`condition`, reusing the factor of a previous posterior at the same hyperparameters.

    In `previous` some curves were shorter, or there were runs that have been removed since.
    """
    if previous is None or previous.specification != specification or previous.values != values:
        return condition(curves, specification, values, geometry, summary)
    summary = summary or summarise(curves, previous.time)
    r = PseudoObservations.from_summary(
        summary, specification.coefficient_means(values), specification.scale_model(values)
    )
    places = _places(previous.curves, curves)
    changed = _changed(previous.curves, curves, places)
    c = Covariances.extending(previous, curves.configs, places)
    r, factor = update_factor(previous.pseudo_observations, previous.factor, r, places, changed, c)
    return replace(
        previous,
        curves=curves,
        values=values,
        summary=summary,
        pseudo_observations=r,
        log_evidence=log_evidence(r, factor),
        inputs=c.inputs,
        factor=factor,
    )


def _places(before: Curves, curves: Curves) -> IntArray:
    """(N before,) the current index of each run, -1 if it was removed. Runs are identified by their configurations."""
    n = len(before)
    if n <= len(curves) and np.array_equal(before.configs, curves.configs[:n]):
        return np.arange(n)
    here: dict[bytes, list[int]] = {}
    for place in reversed(range(len(curves))):  # several runs of one configuration keep their order
        here.setdefault(curves.configs[place].tobytes(), []).append(place)
    found = (here.get(config.tobytes()) for config in before.configs)
    return np.array([places.pop() if places else -1 for places in found], dtype=np.int64)


def _changed(before: Curves, curves: Curves, places: IntArray) -> BoolArray:
    """(N now,) which runs are new or have a changed curve."""
    changed = np.ones(len(curves), dtype=bool)
    stay = places >= 0
    old, new = np.flatnonzero(stay), places[stay]
    changed[new] = (before.counts[old] != curves.counts[new]) | (before.sums[old] != curves.sums[new])
    return changed


@dataclass(frozen=True)
class Covariances:
    """The prior covariance of the coefficients of N runs, evaluated between any rows."""

    inputs: Array  # (N, D) scaled configurations
    values: Values
    variances: Array  # (q,) amplitudes of the coefficients
    mean_variances: Array  # (q,) variances of their common means

    @classmethod
    def extending(cls, posterior: Posterior, configs: Array, places: IntArray | None = None) -> Covariances:
        """Of these configurations, among which the runs of the posterior are at `places`; by default the first ones."""
        places = np.arange(len(posterior.inputs)) if places is None else places
        stay = places >= 0
        inputs, new = np.empty_like(configs), np.ones(len(configs), dtype=bool)
        new[places[stay]] = False
        inputs[places[stay]], inputs[new] = posterior.inputs[stay], posterior.new_inputs(configs[new])
        s = posterior.specification
        return cls(inputs, posterior.values, s.coefficient_variances(posterior.values), s.coefficient_mean_variances())

    def between(self, r: PseudoObservations, some: slice, others: slice) -> Array:
        """R (K x A) R^T + R T R^T between two ranges of rows."""
        V, W = r.directions[some], r.directions[others]
        left, right = r.runs[some], r.runs[others]
        K = run_correlation(self.inputs[left], left, self.inputs[right], right, self.values)
        return (V * self.variances) @ W.T * K + (V * self.mean_variances) @ W.T


def update_factor(
    old: PseudoObservations,
    factor: Factor,
    new: PseudoObservations,
    places: IntArray,
    changed: BoolArray,
    c: Covariances,
) -> tuple[PseudoObservations, Factor]:
    """Reorder the new pseudo-observations and factorise them, reusing the factor of the old ones.

    `places` (N before,) is the current index of each old run, -1 for a run that was removed; `changed` (N now,) marks
    current runs that are new or whose curve changed.
    """
    runs = places[old.runs]
    touched = (runs < 0) | changed[runs]
    first = int(touched.argmax()) if touched.any() else len(runs)
    staying = np.flatnonzero(~touched)
    r = _reordered(new, runs[staying], changed)
    n, M = len(staying), len(r.runs)
    # [L11 0; L21 L22]: L11 is reused, and so are the rows of L21 whose runs have not changed
    L = np.zeros((M, M), order="F")
    head = slice(0, first)
    L[head, head] = factor.lower[head, head]
    L[first:n, :first] = factor.lower[staying[first:], :first]
    L[n:, :first] = solve_lower(L[:first, :first], c.between(r, head, slice(n, M))).T
    tail = slice(first, M)
    S = c.between(r, tail, tail) - L[tail, head] @ L[tail, head].T
    S.flat[:: len(S) + 1] += 1.0  # the diagonal
    L[tail, tail] = cholesky(S, "the covariance of the curves' coefficients")
    z = factor.whitened[:first]
    rest = solve_lower(L[tail, tail], r.values[tail] - L[tail, head] @ z)
    return r, Factor(L, np.concatenate([z, rest]))


def append(
    old: PseudoObservations, factor: Factor, new: PseudoObservations, cross: Array, c: Covariances
) -> tuple[PseudoObservations, Factor]:
    """Append rows; `cross` holds, one row for each, L^-1 times their covariance with the old ones."""
    m, M = len(old.runs), len(old.runs) + len(new.runs)
    r = replace(
        old,
        runs=np.concatenate([old.runs, new.runs]),
        directions=np.concatenate([old.directions, new.directions]),
        values=np.concatenate([old.values, new.values]),
    )
    S = c.between(r, slice(m, M), slice(m, M)) - cross @ cross.T
    S.flat[:: len(S) + 1] += 1.0  # the diagonal
    L = np.zeros((M, M), order="F")
    L[:m, :m], L[m:, :m] = factor.lower, cross
    L[m:, m:] = cholesky(S, "the covariance of pending losses")
    rest = solve_lower(L[m:, m:], new.values - cross @ factor.whitened)
    return r, Factor(L, np.concatenate([factor.whitened, rest]))


def _reordered(r: PseudoObservations, staying: IntArray, changed: BoolArray) -> PseudoObservations:
    """Rows of unchanged runs in their old order, then those of changed runs. The rows of a run stay together."""
    start = np.searchsorted(r.runs, staying)  # first row of each run; r is sorted by run
    begins = np.concatenate([[True], staying[1:] != staying[:-1]]) if len(staying) else np.zeros(0, dtype=bool)
    index = np.arange(len(staying))
    within = index - np.maximum.accumulate(np.where(begins, index, 0))
    order = np.concatenate([start + within, np.flatnonzero(changed[r.runs])]).astype(np.int64)
    return replace(r, runs=r.runs[order], directions=r.directions[order], values=r.values[order])
