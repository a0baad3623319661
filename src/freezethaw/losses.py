"""A monotone, robust transform between the user's losses and model units, and forecasts in the user's units.

Losses come with plateaus at chance level, with 1e34 next to 0.1, and as metrics to be maximised. The model needs values
with zero mean and unit variance, roughly normal, with a high resolution among the good losses. `Transform.fit` caps
extreme values, compresses those above the median, and fits a monotone spline. The scores at its knots are a weighted
mean (`blend`) of the compressed losses and their normal scores. With `blend` = 0 (the paper's model) the transform is
affine up to the cap. Each run has the same total weight (`weights`); otherwise a single long curve would determine the
units.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtri, stdtr, stdtrit

from freezethaw.errors import ModelError

Array = NDArray[np.float64]
Bounds = tuple[float | None, float | None]

FENCE = 50.0  # losses are capped at the median plus this many spreads (`_spread`)
PLATEAU = 10.0  # the median is on a plateau if the upper quartile is this many times as far away as the best loss
SMALL_CHANGE = 0.1  # upper bound of the spread on a plateau, as a fraction of the median
KNOTS = 12
LOG_SPAN = (
    100.0  # losses are modelled on a log scale if the median is this many times as far from the bound as the best
)
POSITIVE_SPAN = 10.0  # positive losses have the bound 0 if the upper quartile is this many times the best
MODERATE = 1e50  # losses that are all smaller than 1 / this, or mostly larger than this, are rescaled
LOG_LARGEST = 230.0
LARGEST = 1e100  # larger losses are clipped, because squares would overflow; smaller spreads than 1e-100 count as zero


@dataclass(frozen=True)
class Transform:
    """A monotone rational-quadratic spline (Gregory and Delbourgo 1982); plain numbers only.

    Let y = sign * unit * loss. The spline is of y, or of log(y - lower) if `log`. Its tails are linear in y; towards a
    bound they are logarithmic, with the same slope at the last knot, so that every model unit is a possible loss.
    """

    sign: float  # -1 if the metric is maximised
    knots: tuple[float, ...]  # of y, or of log(y - lower); increasing
    scores: tuple[float, ...]  # model units, increasing
    slopes: tuple[float, ...]  # derivatives at the knots, positive
    cap: float  # y above is set to this
    lower: float | None = None  # bounds of y
    upper: float | None = None
    log: bool = False
    unit: float = 1.0  # a power of two; 1 unless all losses are extremely small or large

    @classmethod
    def fit_scaled(
        cls, losses: Array, maximize: bool, blend: float, weights: Array | None, bounds: Bounds | None
    ) -> Transform:
        """The same as `fit`, also for losses that are extremely small or large: they are rescaled first."""
        unit = _unit(losses)
        if bounds is not None:
            bounds = _scaled(bounds[0], unit), _scaled(bounds[1], unit)
        found = cls.fit(losses if unit == 1.0 else unit * losses, maximize, blend, weights, bounds)
        return replace(found, unit=unit)

    @classmethod
    def fit(
        cls,
        losses: ArrayLike,
        maximize: bool = False,
        blend: float = 0.5,
        weights: ArrayLike | None = None,
        bounds: Bounds | None = None,
    ) -> Transform:
        """Fit to the finite losses. `blend` = 0 is affine (the paper), 1 uses the normal scores alone.

        `weights` are those of the losses; equal by default. `bounds` are values that the losses cannot leave.
        """
        sign = -1.0 if maximize else 1.0
        y = sign * np.asarray(losses, dtype=np.float64).ravel()
        w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
        finite = np.flatnonzero(np.isfinite(y))
        if not len(finite):
            raise ModelError("there is no finite loss to fit a transform to")
        order = finite[np.argsort(y[finite], kind="stable")]
        sample = _Sample(np.clip(y[order], -LARGEST, LARGEST), w[order] / w[order].sum())
        low, high = bounds or (None, None)
        lower, upper = (low, high) if sign > 0 else (_scaled(high, -1.0), _scaled(low, -1.0))
        log = False
        if blend > 0 and lower is not None and sample.losses[0] > lower:
            log = bool(sample.quantile(0.5) - lower >= LOG_SPAN * (sample.losses[0] - lower))
        if log and lower is not None:
            sample = _Sample(np.log(sample.losses - lower), sample.weights)
        spread = _spread(sample)
        cap = float(sample.quantile(0.5) + FENCE * spread)
        sample = _Sample(np.minimum(sample.losses, cap), sample.weights)
        knots, scores = _knots(sample, spread, blend)
        slopes = _slopes(knots, scores)
        if log and lower is not None:
            cap = float(min(lower + math.exp(min(cap, LOG_LARGEST)), LARGEST))
        raw = cls(sign, tuple(knots), tuple(scores), tuple(slopes), cap, lower, upper, log)
        y = lower + np.exp(sample.losses) if log and lower is not None else sample.losses
        shift, scale = _moments(raw._forward(y)[0], sample.weights)
        if sample.losses[0] == sample.losses[-1]:
            scale = 1.0
        return replace(raw, scores=tuple((scores - shift) / scale), slopes=tuple(slopes / scale))

    def to_model(self, losses: ArrayLike) -> Array:
        """Losses in model units; those above the cap are set to it."""
        y = np.clip(self.sign * self.unit * np.asarray(losses, dtype=np.float64), -LARGEST, self.cap)
        return self._forward(y)[0]

    def from_model(self, z: ArrayLike) -> Array:
        """The losses at these model units: the inverse of the spline."""
        y = self._backward(np.asarray(z, dtype=np.float64))
        if self.unit != 1.0:
            with np.errstate(over="ignore"):
                y = np.clip(y / self.unit, -sys.float_info.max, sys.float_info.max)
        return np.asarray(self.sign * y)

    def with_slope(self, losses: ArrayLike) -> tuple[Array, Array]:
        """Model units without the cap, and the Jacobian |dz/dloss|."""
        z, slope = self._forward(self.sign * self.unit * np.asarray(losses, dtype=np.float64))
        with np.errstate(over="ignore"):
            return z, slope * self.unit

    def _ends(self) -> tuple[float, float, float, float]:
        """Y at the first and at the last knot, and dz/dy there."""
        first, last, low, high = self.knots[0], self.knots[-1], self.slopes[0], self.slopes[-1]
        if not self.log or self.lower is None:
            return first, last, low, high
        return self.lower + math.exp(first), self.lower + math.exp(last), low / math.exp(first), high / math.exp(last)

    def _forward(self, y: Array) -> tuple[Array, Array]:
        first, last, d_first, d_last = self._ends()
        inside = np.clip(y, first, last)
        if self.log and self.lower is not None:
            z, slope = self._spline(np.log(inside - self.lower))
            slope = slope / (inside - self.lower)
        else:
            z, slope = self._spline(inside)
        below, d_below = _tail(np.maximum(first - y, 0.0), d_first, _margin(first, self.lower))
        above, d_above = _tail(np.maximum(y - last, 0.0), d_last, _margin(self.upper, last))
        return z - below + above, np.where(y < first, d_below, np.where(y > last, d_above, slope))

    def _spline(self, x: Array) -> tuple[Array, Array]:
        """The spline and its derivative, between its first and its last knot."""
        k, s, d = np.array(self.knots), np.array(self.scores), np.array(self.slopes)
        inside = np.clip(x, k[0], k[-1])
        i = np.clip(np.searchsorted(k, inside, side="right") - 1, 0, len(k) - 2)
        width, rise = k[i + 1] - k[i], s[i + 1] - s[i]
        mean_slope, x = rise / width, (inside - k[i]) / width
        bend = d[i + 1] + d[i] - 2 * mean_slope
        below = mean_slope + bend * x * (1 - x)
        z = s[i] + rise * (mean_slope * x**2 + d[i] * x * (1 - x)) / below
        slope = mean_slope**2 * (d[i + 1] * x**2 + 2 * mean_slope * x * (1 - x) + d[i] * (1 - x) ** 2) / below**2
        return z, slope

    def _backward(self, z: Array) -> Array:
        k, s, d = np.array(self.knots), np.array(self.scores), np.array(self.slopes)
        inside = np.clip(z, s[0], s[-1])
        i = np.clip(np.searchsorted(s, inside, side="right") - 1, 0, len(s) - 2)
        width, rise, e = k[i + 1] - k[i], s[i + 1] - s[i], inside - s[i]
        mean_slope = rise / width
        bend = d[i + 1] + d[i] - 2 * mean_slope
        # the root in [0, 1] of a x^2 + b x + c = 0, in the form without cancellation
        a, b, c = rise * (mean_slope - d[i]) + e * bend, rise * d[i] - e * bend, -mean_slope * e
        x = -2 * c / (b + np.sqrt(np.maximum(b * b - 4 * a * c, 0.0)))
        y = k[i] + x * width
        if self.log and self.lower is not None:
            y = self.lower + np.exp(y)
        first, last, d_first, d_last = self._ends()
        y = y - _distance(np.maximum(s[0] - z, 0.0), d_first, _margin(first, self.lower))
        y = y + _distance(np.maximum(z - s[-1], 0.0), d_last, _margin(self.upper, last))
        return np.asarray(y if self.lower is None and self.upper is None else np.clip(y, self.lower, self.upper))


def inferred_bounds(losses: Array, weights: Array, maximize: bool) -> Bounds | None:
    """Bounds of a metric that can be told from its finite values.

    (0, 1) for a metric to be maximised with all values in that range, such as an accuracy; (0, None) for losses that
    are positive and span an order of magnitude; else none.
    """
    low, high = float(losses.min()), float(losses.max())
    if maximize:
        return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else None
    order = np.argsort(losses, kind="stable")
    spans = low > 0 and _Sample(losses[order], weights[order] / weights.sum()).quantile(0.75) >= POSITIVE_SPAN * low
    return (0.0, None) if spans else None


def _unit(y: Array) -> float:
    """1, or a power of two that brings losses that are all extremely small, or mostly extremely large, near 1."""
    sizes = np.abs(y[y != 0])
    if not len(sizes):
        return 1.0
    sizes = np.sort(sizes)
    largest, usual = float(sizes[-1]), float(sizes[len(sizes) // 2])
    if largest < 1 / MODERATE:
        return math.ldexp(1.0, min(-math.frexp(largest)[1], 1000))
    return math.ldexp(1.0, -math.frexp(usual)[1]) if usual > MODERATE else 1.0


def _scaled(bound: float | None, factor: float) -> float | None:
    return None if bound is None else factor * bound


def _margin(high: float | None, low: float | None) -> float | None:
    """The distance from the last knot to the bound, tiny if there is none left; None if there is no bound."""
    return None if high is None or low is None else max(high - low, 1.0 / LARGEST)


def _tail(distance: Array, slope: float, margin: float | None) -> tuple[Array, Array]:
    """Model units beyond the last knot at this distance of y, and their derivative: linear, or up to a bound."""
    if margin is None:
        return slope * distance, np.full_like(distance, slope)
    left = np.maximum(1.0 - distance / margin, 1e-300)
    return -slope * margin * np.log(left), slope / left


def _distance(units: Array, slope: float, margin: float | None) -> Array:
    """The inverse of `_tail`."""
    return units / slope if margin is None else -margin * np.expm1(-units / (slope * margin))


@dataclass(frozen=True)
class _Sample:
    """Sorted losses and their weights, which sum to one."""

    losses: Array
    weights: Array

    @property
    def positions(self) -> Array:
        """Cumulative weight at each loss, with half of its own weight."""
        return np.asarray(np.cumsum(self.weights) - 0.5 * self.weights)

    def quantile(self, share: float) -> float:
        """Quantile by linear interpolation."""
        return float(np.interp(share, self.positions, self.losses))


def _moments(values: Array, weights: Array) -> tuple[float, float]:
    """Weighted mean and standard deviation."""
    mean = float(weights @ values)
    return mean, math.sqrt(float(weights @ (values - mean) ** 2))


def _spread(sample: _Sample) -> float:
    """The distance between the best loss and the median, the scale of the differences that matter. Never zero.

    If most runs are on a plateau, for example at chance level, this distance is nearly zero, and in such units leaving
    the plateau would have almost no probability. Then the spread is the distance between the median and the upper
    quartile, but at most a tenth of the median, because diverging runs may make up that quartile.
    """
    y, middle, high = sample.losses, sample.quantile(0.5), sample.quantile(0.75)
    below, small_change = middle - y[0], SMALL_CHANGE * abs(middle)
    beside = min(high - middle, small_change)
    usual = beside if beside > PLATEAU * below else below
    for spread in (usual, high - middle, y[-1] - middle, small_change):
        if spread > max(1e-9 * abs(middle), 1.0 / LARGEST):
            return float(spread)
    return 1.0


def _knots(sample: _Sample, spread: float, blend: float) -> tuple[Array, Array]:
    """Knots at quantiles of the losses, and their scores: values blended with normal scores. Ties share one knot."""
    y, w = sample.losses, sample.weights
    middle = sample.quantile(0.5)
    above = np.maximum(y - middle, 0.0)
    compressed = y if blend == 0 else np.minimum(y, middle) + spread * np.log1p(above / spread)
    mean, deviation = _moments(compressed, w)
    standard = (compressed - mean) / max(deviation, 1e-9 * spread)
    scores = blend * ndtri(sample.positions) + (1 - blend) * standard
    gap = 1e-3 * max(_moments(y, w)[1], 1e-9 * spread)
    knots: list[float] = []
    at: list[float] = []
    for value in y[_picks(sample, 2 if blend == 0 else KNOTS)]:
        if knots and value - knots[-1] <= gap:
            continue
        tied = slice(*np.searchsorted(y, [value - gap, value + gap], side="right"))
        knots.append(float(value))
        at.append(float(np.average(scores[tied], weights=w[tied])))
    if len(knots) == 1:
        return np.array([knots[0], knots[0] + spread]), np.array([0.0, 1.0])
    return np.array(knots), np.array(at)


def _picks(sample: _Sample, count: int) -> NDArray[np.int64]:
    """Indices of the losses that become knots: the smallest, the largest, and equally spaced quantiles between."""
    positions = sample.positions
    shares = np.linspace(positions[0], positions[-1], count)
    nearest = np.round(np.interp(shares, positions, np.arange(len(positions)))).astype(np.int64)
    return np.unique(np.concatenate([[0], nearest, [len(positions) - 1]]))


def _slopes(knots: Array, scores: Array) -> Array:
    """Derivatives at the knots: weighted geometric means of the slopes on both sides, so the spline is monotone."""
    width = np.diff(knots)
    slope = np.diff(scores) / width
    if len(slope) == 1:
        return np.repeat(slope, 2)
    w = width[1:] / (width[1:] + width[:-1])
    inner = np.exp(w * np.log(slope[:-1]) + (1 - w) * np.log(slope[1:]))
    # the upper tail is at least as steep as the whole spline: this bounds the losses that correspond to high scores
    overall = (scores[-1] - scores[0]) / (knots[-1] - knots[0])
    return np.concatenate([[_slope_below(knots, scores)], inner, [max(slope[-1], overall)]])


def _slope_below(knots: Array, scores: Array) -> float:
    """Slope of the lower tail, which contains future improvements: at most the slope from the best loss to the mean.

    The best losses often belong to one run that has almost converged, and differ little. The slope between them would
    make any larger improvement nearly impossible in model units.
    """
    first = (scores[1] - scores[0]) / (knots[1] - knots[0])
    if not scores[0] < 0.0 < scores[-1]:
        return float(first)
    return float(min(first, -scores[0] / (np.interp(0.0, scores, knots) - knots[0])))


@dataclass(frozen=True, repr=False)
class Forecast:
    """Predictive distributions of E losses in the user's units: mixtures in model units, mapped by the transform.

    A loss that is `measured` already is given as it was measured; its density is still that of another measurement.

    Component i of entry e is a Student-t (a normal if `freedoms` are infinite) about `means[i, e]` in model units.
    """

    transform: Transform
    weights: Array  # (C, E), columns sum to one
    means: Array  # (C, E)
    scales: Array  # (C, E)
    freedoms: Array  # (C, E)
    epochs: Array | None = field(default=None, kw_only=True)  # (E,) which they are of, if that is known
    measured: Array | None = field(default=None, kw_only=True)  # (E,) known losses, NaN where they are not
    metric: str = field(default="loss", kw_only=True)

    @property
    def mean(self) -> Array:
        """Expected loss, by a quadrature rule of 64 nodes for each component."""
        return self._or_measured(self._moment(1) / self.transform.unit)

    @property
    def std(self) -> Array:
        """Standard deviation of the loss, by the same rule."""
        found = np.sqrt(self._moment(2, self._moment(1))) / self.transform.unit
        return found if self.measured is None else np.where(np.isnan(self.measured), found, 0.0)

    def _or_measured(self, forecast: Array) -> Array:
        """The forecast; where the loss is known, that."""
        return forecast if self.measured is None else np.where(np.isnan(self.measured), forecast, self.measured)

    def _moment(self, power: int, centre: Array | float = 0.0) -> Array:
        """In rescaled units, in which squares do not underflow."""
        u = (np.arange(64) + 0.5) / 64
        # integrate over probabilities p = u^3 (10 - 15 u + 6 u^2): this puts more nodes into the heavy tails
        nodes, steps = u**3 * (10 - 15 * u + 6 * u * u), 30 * (u * (1 - u)) ** 2 / len(u)
        t = _quantile(nodes[:, None, None], self.freedoms[None])
        y = self.transform.from_model(self.means + self.scales * t) * self.transform.unit
        return np.asarray(np.einsum("k,ce,kce->e", steps, self.weights, (y - centre) ** power))

    def log_density(self, loss: ArrayLike) -> Array:
        """Log density of the loss in the user's units."""
        z, slope = self.transform.with_slope(loss)
        x = (z - self.means) / self.scales
        parts = _log_density(x, self.freedoms) - np.log(self.scales) + np.log(np.maximum(self.weights, 1e-300))
        return np.asarray(np.logaddexp.reduce(parts, axis=0) + np.log(slope))

    def probability_below(self, loss: ArrayLike) -> Array:
        """Probability that the loss is below this value, in the user's units."""
        z, _ = self.transform.with_slope(loss)
        below = np.sum(self.weights * _cdf((z - self.means) / self.scales, self.freedoms), axis=0)
        below = below if self.transform.sign > 0 else 1.0 - below
        if self.measured is None:
            return np.asarray(below)
        return np.where(np.isnan(self.measured), below, (self.measured < np.asarray(loss)).astype(np.float64))

    def quantile(self, q: ArrayLike) -> Array:
        """Quantiles of the loss; shape of `q` followed by the number of entries."""
        levels = np.asarray(q, dtype=np.float64)
        if np.any((levels <= 0) | (levels >= 1)):
            raise ModelError(f"quantiles lie strictly between 0 and 1, not {q!r}")
        p = levels if self.transform.sign > 0 else 1.0 - levels
        p = p.reshape(-1, 1)
        at = _quantile(p[:, None, :], self.freedoms[None]) * self.scales + self.means  # (Q, C, E)
        low, high = at.min(axis=1), at.max(axis=1)
        for _ in range(60):  # bisection: the quantile of the mixture lies between those of its components
            middle = 0.5 * (low + high)
            x = (middle[:, None, :] - self.means) / self.scales
            below = np.sum(self.weights * _cdf(x, self.freedoms), axis=1) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found = self.transform.from_model(0.5 * (low + high)).reshape(*levels.shape, -1)
        return self._or_measured(found)

    def __repr__(self) -> str:
        """The forecast of each entry, or of the first and the last one."""
        means, bands = self.mean, self.quantile([0.05, 0.95])
        parts = []
        for i in sorted({0, len(means) - 1}):
            at = "" if self.epochs is None else f"epoch {self.epochs[i]:g}: "
            parts.append(f"{at}{self.metric} {means[i]:.4g}, 90 % interval {bands[0, i]:.4g} to {bands[1, i]:.4g}")
        return f"<Forecast: {' ... '.join(parts)}>"

    def _repr_html_(self) -> str:
        """A picture, for notebooks."""
        from freezethaw.notebook import forecast_html

        return forecast_html(self)


LARGE = 1e6  # with this many degrees of freedom a Student-t is a normal distribution, to rounding


def _log_density(x: Array, freedom: Array) -> Array:
    f = np.minimum(freedom, LARGE)
    constant = gammaln((f + 1) / 2) - gammaln(f / 2) - 0.5 * np.log(f * math.pi)
    return np.asarray(constant - 0.5 * (f + 1) * np.log1p(x * x / f))


def _cdf(x: Array, freedom: Array) -> Array:
    return np.asarray(stdtr(np.minimum(freedom, LARGE), x))


def _quantile(p: Array, freedom: Array) -> Array:
    return np.asarray(stdtrit(np.minimum(freedom, LARGE), p))
