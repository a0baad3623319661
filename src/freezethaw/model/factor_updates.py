"""Reusing a Cholesky factor when few runs have changed, or when rows are appended. Not in the paper.

A decision changes one or two runs. The pseudo-observations are kept in the order in which their runs last changed, so
the rows that change next are usually near the end, and the factor of all rows before the first changed one is reused.
Arrays may have leading dimensions (...), one entry for each hyperparameter sample; the order is that of all samples.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import run_correlation, scaled_column
from freezethaw.model.curves import Array, Curves, IntArray
from freezethaw.model.linear import add_to_diagonal, cholesky, solve_lower, solve_vector, transposed
from freezethaw.model.posterior import Posterior, condition
from freezethaw.model.pseudo_observations import (
    Factor,
    PseudoObservations,
    factorise,
    log_evidence,
    noisy_covariance,
    of_rows,
)
from freezethaw.model.specification import Geometry, Parameter, Specification, Values
from freezethaw.model.summaries import summarise

BoolArray = NDArray[np.bool_]


def recondition(
    previous: Posterior | None,
    curves: Curves,
    specification: Specification,
    values: Values,
    geometry: Geometry | None = None,
) -> Posterior:
    """`condition`, reusing the factor of a previous posterior at the same hyperparameters.

    In `previous` some curves were shorter, or there were runs that have been removed since.
    """
    if previous is None or previous.specification != specification or not _equal(previous.values, values):
        return condition(curves, specification, values, geometry)
    summary = summarise(curves, previous.time)
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
        summary=summary,
        pseudo_observations=r,
        log_evidence=log_evidence(r, factor),
        inputs=c.inputs,
        factor=factor,
    )


def with_samples(posterior: Posterior, values: Values, moved: IntArray, parameters: Collection[Parameter]) -> Posterior:
    """The posterior of the same curves when the hyperparameters of the samples `moved` have changed to `values` (S,).

    `parameters` are the hyperparameters that changed.
    """
    s, old = posterior.specification, posterior.pseudo_observations
    time, summary, inputs = posterior.time, posterior.summary, posterior.inputs
    some = {name: np.asarray(v)[moved] for name, v in values.items()}
    if any(p.part == "time" for p in parameters):
        time = s.time_model(values)
        summary = summarise(posterior.curves, time)
    dimensions = {p.dimension for p in parameters if p.part == "space"}
    columns = [c for c, length in enumerate(posterior.geometry.lengths) if length in dimensions]
    if columns:
        inputs = inputs.copy()
        for c in columns:
            inputs[moved, :, c] = scaled_column(posterior.curves.configs[:, c], c, posterior.geometry, some)
    r = PseudoObservations.from_summary(summary, s.coefficient_means(values), s.scale_model(values))
    r = r.rows(_same_order(r.runs, old.runs))
    every = np.arange(len(posterior.curves))
    K = run_correlation(inputs[moved], every, inputs[moved], every, some)
    part = replace(r, directions=r.directions[moved], values=r.values[moved])
    a, tau = s.coefficient_variances(some), s.coefficient_mean_variances()
    found = factorise(part, noisy_covariance(part, of_rows(K, r.runs), a, tau))
    factor = Factor(posterior.factor.lower.copy(), posterior.factor.whitened.copy())
    factor.lower[moved], factor.whitened[moved] = found.lower, found.whitened
    evidence = log_evidence(r, factor)
    return replace(
        posterior,
        values=values,
        time=time,
        summary=summary,
        pseudo_observations=r,
        log_evidence=evidence,
        inputs=inputs,
        factor=factor,
    )


def _equal(a: Values, b: Values) -> bool:
    return a is b or (a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a))


def _same_order(runs: IntArray, wanted: IntArray) -> IntArray:
    """Indices that bring rows sorted by run into the order `wanted`; the rows of a run keep their order."""
    order = np.empty(len(runs), dtype=np.int64)
    order[np.argsort(wanted, kind="stable")] = np.argsort(runs, kind="stable")
    return order


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

    inputs: Array  # (..., N, D) scaled configurations
    values: Values
    variances: Array  # (..., q) amplitudes of the coefficients
    mean_variances: Array  # (q,) variances of their common means

    @classmethod
    def extending(cls, posterior: Posterior, configs: Array, places: IntArray | None = None) -> Covariances:
        """Of these configurations, among which the runs of the posterior are at `places`; by default the first ones."""
        *stack, n, d = posterior.inputs.shape
        places = np.arange(n) if places is None else places
        stay = places >= 0
        inputs, new = np.empty((*stack, len(configs), d)), np.ones(len(configs), dtype=bool)
        new[places[stay]] = False
        inputs[..., places[stay], :] = posterior.inputs[..., stay, :]
        inputs[..., new, :] = posterior.new_inputs(configs[new])
        s = posterior.specification
        return cls(inputs, posterior.values, s.coefficient_variances(posterior.values), s.coefficient_mean_variances())

    def between(self, r: PseudoObservations, some: slice, others: slice) -> Array:
        """R (K x A) R^T + R T R^T between two ranges of rows."""
        V, W = r.directions[..., some, :], transposed(r.directions[..., others, :])
        left, right = r.runs[some], r.runs[others]
        K = run_correlation(self.inputs[..., left, :], left, self.inputs[..., right, :], right, self.values)
        return np.asarray((V * self.variances[..., None, :]) @ W * K + (V * self.mean_variances) @ W)


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
    L = np.zeros((*factor.lower.shape[:-2], M, M))
    head, tail = slice(0, first), slice(first, M)
    L[..., head, head] = factor.lower[..., head, head]
    L[..., first:n, head] = factor.lower[..., staying[first:], :first]
    L[..., n:, head] = transposed(solve_lower(factor.lower[..., head, head], c.between(r, head, slice(n, M))))
    L21 = L[..., tail, head]
    S = c.between(r, tail, tail) - L21 @ transposed(L21)
    add_to_diagonal(S, 1.0)
    L22 = L[..., tail, tail] = cholesky(S, "the covariance of the curves' coefficients")
    z = factor.whitened[..., :first]
    rest = solve_vector(L22, r.values[..., tail] - (L21 @ z[..., None])[..., 0])
    return r, Factor(L, np.concatenate([z, rest], axis=-1))


def append(
    old: PseudoObservations, factor: Factor, new: PseudoObservations, cross: Array, c: Covariances
) -> tuple[PseudoObservations, Factor]:
    """Append rows; `cross` holds, one row for each, L^-1 times their covariance with the old ones."""
    m, M = len(old.runs), len(old.runs) + len(new.runs)
    r = replace(
        old,
        runs=np.concatenate([old.runs, new.runs]),
        directions=np.concatenate([old.directions, new.directions], axis=-2),
        values=np.concatenate([old.values, new.values], axis=-1),
    )
    S = c.between(r, slice(m, M), slice(m, M)) - cross @ transposed(cross)
    add_to_diagonal(S, 1.0)
    L = np.zeros((*factor.lower.shape[:-2], M, M))
    L[..., :m, :m], L[..., m:, :m] = factor.lower, cross
    L22 = L[..., m:, m:] = cholesky(S, "the covariance of pending losses")
    rest = solve_vector(L22, new.values - (cross @ factor.whitened[..., None])[..., 0])
    return r, Factor(L, np.concatenate([factor.whitened, rest], axis=-1))


def _reordered(r: PseudoObservations, staying: IntArray, changed: BoolArray) -> PseudoObservations:
    """Rows of unchanged runs in their old order, then those of changed runs. The rows of a run stay together."""
    start = np.searchsorted(r.runs, staying)  # first row of each run; r is sorted by run
    begins = np.concatenate([[True], staying[1:] != staying[:-1]]) if len(staying) else np.zeros(0, dtype=bool)
    index = np.arange(len(staying))
    within = index - np.maximum.accumulate(np.where(begins, index, 0))
    return r.rows(np.concatenate([start + within, np.flatnonzero(changed[r.runs])]).astype(np.int64))
