"""Model specifications: basis functions and residual kernel over epochs, hyperparameters and their priors.

A loss of run n is  y_n(t) = sum_j c_j(x_n) h_j(t) + s_n (r_n(t) + noise).  Each coefficient c_j is a Gaussian process
over configurations, and all of them share one correlation function; r_n is an independent process for each run; s_n is
the scale of the run.

`paper` is q = 1 with h = 1, the exponential-decay kernel for r, and s_n = 1. `drift` is the default model and `luck`
its variant for repeated configurations; both use all of the above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.model.curves import Array
from freezethaw.model.kernels import exponential_decay, over_pairs, smooth_in_log_time
from freezethaw.model.priors import Horseshoe, LogNormal, Normal, Prior, Uniform
from freezethaw.model.scales import ScaleModel
from freezethaw.model.summaries import TimeModel

Values = Mapping[str, float | Array]  # by name: numbers, or arrays with one entry for each of S samples

# lower bounds of the noise variance, in units in which losses have variance one
PAPER_NOISE_FLOOR = 1e-8
NOISE_FLOOR = 1e-6  # above the variance of a stalled run

# of the expected loss in an earlier study, whose range of six standard deviations is [0, 1]: losses here are expected
# to vary about as much as losses there
EXPECTED_LENGTH = LogNormal(math.log(0.3), 1.0)

BasisFunction = Callable[[Array, Values, float], Array]
ResidualKernel = Callable[[Array, Array, Values], Array]


def _drop(t: Array, v: Values, horizon: float) -> Array:
    """Decreases from 1/2 at the first epoch to -1/2 at the horizon, proportionally to (beta / (t + beta))^alpha.

    That is the mean of the paper's gamma mixture of exponentials. The function is centred because in real learning
    curves the first and the last loss vary about as much as the middle one: with an uncentred function the coefficients
    of level and drop would be strongly correlated.
    """
    alpha, beta = (np.asarray(v[name])[..., None] for name in ("alpha", "beta"))

    def decayed(u: Array) -> Array:
        """1 - the decay relative to its value at the first epoch."""
        return np.asarray(1.0 - ((1.0 + beta) / (u + beta)) ** alpha)

    return np.asarray(0.5 - decayed(t) / decayed(np.array(max(horizon, 2.0))))


def _level(t: Array, v: Values, horizon: float) -> Array:
    """One at all epochs; with the hyperparameter `tilt` more at the first epoch and less at the last, or vice versa.

    The tilt is the regression of the drop on the level over configurations. It lets the losses of the first epoch vary
    less between configurations than those of the last: at tilt -2 all runs start at the same level, such as that of
    chance, and -2 to 2 spans both extremes. Without it both would vary equally, and runs that all start alike would be
    expected to end alike.
    """
    return 1.0 + np.asarray(v["tilt"])[..., None] * _drop(t, v, horizon) if "tilt" in v else np.ones_like(t)


def _drift(t: Array, horizon: float) -> Array:
    """Increases linearly in log time from -1/2 to 1/2 at the horizon, then stays: slow change in either direction."""
    return np.asarray(np.log(np.minimum(t, horizon)) / math.log(max(horizon, 2.0)) - 0.5)


def _late(t: Array, horizon: float) -> Array:
    """Zero up to the root of the horizon, then linear in log time up to one: change of which short runs say nothing.

    Without it, a run that is flat at first is expected to stay flat, and runs that start slowly are never found.
    """
    end = max(horizon, 2.0)
    begin = end**0.5
    return np.asarray(np.log(np.clip(t / begin, 1.0, end / begin)) / math.log(end / begin))


# name: (function, names of the hyperparameters it needs)
BASIS: Mapping[str, tuple[BasisFunction, tuple[str, ...]]] = {
    "level": (_level, ()),
    "drop": (_drop, ("alpha", "beta")),
    "drift": (lambda t, v, horizon: _drift(t, horizon), ()),
    "late": (lambda t, v, horizon: _late(t, horizon), ()),
}
RESIDUAL: Mapping[str, tuple[ResidualKernel, tuple[str, ...]]] = {
    "decay": (lambda t, u, v: exponential_decay(t, u, v["alpha"], v["beta"]), ("alpha", "beta")),
    "smooth": (
        lambda t, u, v: over_pairs(v["smooth.variance"]) * smooth_in_log_time(t, u, v["smooth.length"]),
        ("smooth.variance", "smooth.length"),
    ),
}


def repeat_correlation(values: Values) -> Array | None:
    """Correlation between two runs of one configuration: 1 / (1 + run-to-run variance); None in models without it.

    The hyperparameter `luck` is the run-to-run variance of a coefficient (from seeds and the order of data), relative
    to the variance explained by the configuration.
    """
    return 1.0 / (1.0 + np.asarray(values["luck"])) if "luck" in values else None


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter: its prior, the part of the computation that depends on it, and how it is sampled."""

    name: str
    prior: Prior
    part: Literal["time", "space", "level"]
    log: bool = True  # sampled on the log scale
    block: str = ""  # parameters of one block have log-normal priors and are updated jointly
    dimension: int | None = None  # index of the length scale that a parameter of `space` belongs to


@dataclass(frozen=True)
class Geometry:
    """Length scale and warping of each column of the unit cube. The columns of one choice share a length scale."""

    lengths: tuple[int, ...]  # for each column, the index of its length scale
    warped: tuple[bool, ...]  # for each column
    expected: int = 0  # the last columns are expected losses in earlier studies, each with a length scale of its own

    @classmethod
    def plain(cls, dimensions: int) -> Geometry:
        """Every column has its own length scale and is warped, as in the paper."""
        return cls(tuple(range(dimensions)), (True,) * dimensions)

    @property
    def count(self) -> int:
        """Number of length scales."""
        return max(self.lengths, default=-1) + 1


@dataclass(frozen=True)
class Specification:
    """A model without its data and the values of its hyperparameters."""

    name: str
    basis: tuple[str, ...]
    residual: str
    priors: Mapping[str, Prior]  # of all hyperparameters but length scales and warps
    length_prior: Prior
    warp_prior: Prior | None
    horizon: float = math.inf  # the asymptote is the noise-free loss at this epoch
    mean_variance: Mapping[str, float] = field(default_factory=dict)  # of each coefficient's mean; by default zero
    run_scales: bool = False

    def __post_init__(self) -> None:
        for name in self.basis:
            if name not in BASIS:
                raise ModelError(f"unknown basis function {name!r}; known: {', '.join(BASIS)}")
        if self.residual not in RESIDUAL:
            raise ModelError(f"unknown kernel over epochs {self.residual!r}; known: {', '.join(RESIDUAL)}")
        missing = [name for name in (*self.time_names(), *self.level_names()) if name not in self.priors]
        if missing:
            raise ModelError(f"model {self.name!r} has no prior for {', '.join(missing)}")

    def time_names(self) -> tuple[str, ...]:
        """Hyperparameters of basis functions, residual kernel and noise."""
        needed = [BASIS[b][1] for b in self.basis] + [RESIDUAL[self.residual][1]]
        tilt = ("tilt",) if "tilt" in self.priors else ()
        return (*dict.fromkeys(name for names in needed for name in names), *tilt, "noise")

    def level_names(self) -> tuple[str, ...]:
        """Hyperparameters on which neither the summaries of the curves nor the correlation of runs depends."""
        names = tuple(f"{b}.variance" for b in self.basis)
        names += ("mean",) if "mean" in self.priors else ()
        return (*names, "freedom") if self.run_scales else names

    def parameters(self, geometry: Geometry) -> tuple[Parameter, ...]:
        """All hyperparameters in the order in which the sampler updates them."""
        found = [Parameter(name, self.priors[name], "level", name != "mean") for name in self.level_names()]
        found += [Parameter(name, self.priors[name], "time", name != "tilt") for name in self.time_names()]
        found += [Parameter("luck", self.priors["luck"], "space")] if "luck" in self.priors else []
        for g in range(geometry.count):
            found += self._dimension(g, [c for c, group in enumerate(geometry.lengths) if group == g], geometry)
        return tuple(found)

    def _dimension(self, group: int, columns: list[int], geometry: Geometry) -> list[Parameter]:
        """A length scale and the warps of its columns: they are correlated, so log-normal ones are updated jointly."""
        together = all(isinstance(p, LogNormal) and p.floor == 0 for p in (self.length_prior, self.warp_prior))
        block = f"dimension.{group}" if together else ""
        prior = EXPECTED_LENGTH if group >= geometry.count - geometry.expected else self.length_prior
        found = [Parameter(f"length.{group}", prior, "space", block=block, dimension=group)]
        if self.warp_prior is not None:
            names = [f"warp.{ab}.{c}" for c in columns if geometry.warped[c] for ab in "ab"]
            found += [Parameter(name, self.warp_prior, "space", block=block, dimension=group) for name in names]
        return found

    def time_model(self, values: Values) -> TimeModel:
        """Basis functions, residual kernel and noise at these values."""
        functions = [BASIS[name][0] for name in self.basis]
        kernel = RESIDUAL[self.residual][0]

        noise = np.asarray(values["noise"], dtype=np.float64)

        def basis(t: Array) -> Array:
            columns = [h(t, values, self.horizon) for h in functions]
            return np.stack([np.broadcast_to(column, (*noise.shape, len(t))) for column in columns], axis=-1)

        def covariance(t: Array, u: Array) -> Array:
            return kernel(t, u, values)

        return TimeModel(basis, covariance, noise)

    def coefficient_variances(self, values: Values) -> Array:
        """(..., q) amplitudes of the coefficients over configurations."""
        return np.stack([np.asarray(values[f"{b}.variance"], dtype=np.float64) for b in self.basis], axis=-1)

    def coefficient_means(self, values: Values) -> Array:
        """(..., q) prior means of the coefficients: zero but for the level, whose mean may be a hyperparameter."""
        means = np.zeros((*np.shape(values["noise"]), len(self.basis)))
        means[..., 0] = values.get("mean", 0.0)
        return means

    def coefficient_mean_variances(self) -> Array:
        """(q,) variances of those means, integrated out."""
        return np.array([self.mean_variance.get(b, 0.0) for b in self.basis])

    def scale_model(self, values: Values) -> ScaleModel:
        """The prior of the run scales: more than 2 degrees of freedom, so that variances exist."""
        noise = np.asarray(values["noise"], dtype=np.float64)
        return ScaleModel(2.0 + np.asarray(values["freedom"]) if self.run_scales else None, noise)


def paper(mean_range: tuple[float, float]) -> Specification:
    """Swersky, Snoek and Adams (2014), with the priors of appendix B; losses are standardised."""
    standard = LogNormal(0.0, 1.0)
    return Specification(
        name="paper",
        basis=("level",),
        residual="decay",
        priors={
            "level.variance": standard,
            "mean": Uniform(*mean_range),
            "alpha": standard,
            "beta": standard,
            "noise": Horseshoe(0.1, PAPER_NOISE_FLOOR),
        },
        length_prior=Uniform(0.0, 10.0),
        warp_prior=standard,
    )


def drift(dimensions: int, horizon: float) -> Specification:
    """The default model: level, drop, drift and late change, a smooth residual in log time, run scales."""

    def variance(deviation: float, spread: float) -> LogNormal:
        """Prior of a variance from the median and the log-scale spread of its square root."""
        return LogNormal(2 * math.log(deviation), 2 * spread)

    return Specification(
        name="drift",
        basis=("level", "drop", "drift", "late"),
        residual="smooth",
        priors={
            # on 37 tables of four kinds, the first and last losses vary by about one model unit
            "level.variance": variance(0.9, 0.4),
            "drop.variance": variance(0.8, 0.5),
            "drift.variance": variance(0.2, 0.7),
            "late.variance": variance(0.08, 1.5),
            "alpha": LogNormal(0.0, 0.7),
            "beta": LogNormal(math.log(2.0), 1.0),
            "tilt": Normal(0.0, 0.5),
            "smooth.variance": variance(0.2, 1.0),
            "smooth.length": LogNormal(math.log(1.5), 0.7),
            "noise": LogNormal(2 * math.log(0.03), 3.0, NOISE_FLOOR),
            "freedom": LogNormal(math.log(4.0), 0.7),
        },
        # distances grow with the number of dimensions, and so do the length scales
        length_prior=LogNormal(math.log(0.7) + 0.5 * math.log(max(dimensions, 3) / 3), 1.0),
        warp_prior=LogNormal(0.0, 0.5),
        horizon=horizon,
        mean_variance={"level": 1.0, "drop": 1.0, "drift": 0.1, "late": 0.02},
        run_scales=True,
    )


def luck(dimensions: int, horizon: float) -> Specification:
    """The default model with a run-to-run variance, which can be learnt if configurations are run repeatedly."""
    default = drift(dimensions, horizon)
    return replace(default, name="luck", priors={**default.priors, "luck": LogNormal(math.log(0.1), 1.5)})
