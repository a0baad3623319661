"""Which model: its functions of time, what it has to learn, and what is believed beforehand.

A loss of run n is  y_n(t) = sum_j c_j(x_n) h_j(t) + s_n (r_n(t) + noise).  Each coefficient c_j is a Gaussian process
over configurations, all with one correlation; r_n is a process of its own for each run; s_n is the run's own scale.
`paper` is q = 1 with h = 1, the exponential-decay kernel for r, and s_n = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.model.curves import Array
from freezethaw.model.kernels import exponential_decay, ornstein_uhlenbeck, smooth_in_log_time
from freezethaw.model.priors import Horseshoe, LogNormal, Prior, Uniform
from freezethaw.model.scales import ScaleModel
from freezethaw.model.summaries import TimeModel

Values = Mapping[str, float]  # the model's hyperparameters by name

# smallest variances of the noise, in units where losses have variance one
PAPER_NOISE_FLOOR = 1e-8
NOISE_FLOOR = 1e-6  # above the variance of a stalled run

BasisFunction = Callable[[Array, Values, float], Array]
ResidualKernel = Callable[[Array, Array, Values], Array]

# name: (function of epochs, values and horizon; names of the hyperparameters it needs)


def _fall(t: Array, v: Values, horizon: float) -> Array:
    """From 1/2 at the first epoch to -1/2 at the horizon, as (beta / (t + beta))^alpha falls.

    That is the mean of the paper's gamma mixture of exponentials: how curves fall from a common start. Centred like
    this, how far a run falls says little of where the middle of its curve lies, as in real curves, where both the first
    loss and the last vary about as much as the middle does; uncentred coefficients would be strongly correlated.
    """

    def fallen(u: Array) -> Array:
        """How much of the height at the first epoch is gone."""
        return np.asarray(1.0 - ((1.0 + v["beta"]) / (u + v["beta"])) ** v["alpha"])

    return np.asarray(0.5 - fallen(t) / fallen(np.array(max(horizon, 2.0))))


def _rise(t: Array, horizon: float) -> Array:
    """From -1/2 to 1/2 in log time: slow change, also for the worse. It ends at the horizon, where the search ends."""
    return np.asarray(np.log(np.minimum(t, horizon)) / math.log(max(horizon, 2.0)) - 0.5)


# name: (function of epochs, values and horizon; names of the hyperparameters it needs)
BASIS: Mapping[str, tuple[BasisFunction, tuple[str, ...]]] = {
    "level": (lambda t, v, horizon: np.ones_like(t), ()),
    "drop": (_fall, ("alpha", "beta")),
    "drift": (lambda t, v, horizon: _rise(t, horizon), ()),
}
RESIDUAL: Mapping[str, tuple[ResidualKernel, tuple[str, ...]]] = {
    "decay": (lambda t, u, v: exponential_decay(t, u, v["alpha"], v["beta"]), ("alpha", "beta")),
    "wander": (
        lambda t, u, v: v["wander.variance"] * ornstein_uhlenbeck(t, u, v["wander.length"]),
        ("wander.variance", "wander.length"),
    ),
    "smooth": (
        lambda t, u, v: v["smooth.variance"] * smooth_in_log_time(t, u, v["smooth.length"]),
        ("smooth.variance", "smooth.length"),
    ),
}


def repeat_correlation(values: Values) -> float:
    """Correlation of two runs with one configuration: one, unless some of the variance is a run's own luck.

    `luck` is the ratio of the two parts, what a run has of its own to what its configuration gives it.
    """
    return 1.0 / (1.0 + values.get("luck", 0.0))


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter of the model: its prior, which part of the computation it touches, how it is sampled."""

    name: str
    prior: Prior
    part: Literal["time", "space", "level"]
    log: bool = True  # sampled as its logarithm
    block: str = ""  # parameters of one block have log-normal priors and move together


@dataclass(frozen=True)
class Geometry:
    """How the columns of the cube form distances: columns of one choice share a length; some are not warped."""

    lengths: tuple[int, ...]  # for each column, which length scale it uses
    warped: tuple[bool, ...]  # for each column

    @classmethod
    def plain(cls, dimensions: int) -> Geometry:
        """Every column has its own length scale and is warped."""
        return cls(tuple(range(dimensions)), (True,) * dimensions)

    @property
    def count(self) -> int:
        """How many length scales there are."""
        return max(self.lengths, default=-1) + 1


@dataclass(frozen=True)
class Specification:
    """A model, complete but for its data and the values of its hyperparameters."""

    name: str
    basis: tuple[str, ...]
    residual: tuple[str, ...]
    priors: Mapping[str, Prior]  # of the hyperparameters of time and level
    length_prior: Prior
    warp_prior: Prior | None
    horizon: float = math.inf  # the asymptote is the noise-free loss here
    mean_location: Mapping[str, float] = field(default_factory=dict)  # of each coefficient, zero unless said
    mean_variance: Mapping[str, float] = field(default_factory=dict)  # integrated out; zero unless said
    run_scales: bool = False

    def __post_init__(self) -> None:
        for name in self.basis:
            if name not in BASIS:
                raise ModelError(f"unknown basis function {name!r}; known: {', '.join(BASIS)}")
        for name in self.residual:
            if name not in RESIDUAL:
                raise ModelError(f"unknown kernel over epochs {name!r}; known: {', '.join(RESIDUAL)}")
        missing = [name for name in (*self.time_names(), *self.level_names()) if name not in self.priors]
        if missing:
            raise ModelError(f"model {self.name!r} has no prior for {', '.join(missing)}")

    def time_names(self) -> tuple[str, ...]:
        """Hyperparameters of the part over epochs."""
        needed = [BASIS[b][1] for b in self.basis] + [RESIDUAL[r][1] for r in self.residual]
        return (*dict.fromkeys(name for names in needed for name in names), "noise")

    def level_names(self) -> tuple[str, ...]:
        """Hyperparameters that touch neither epochs nor distances."""
        names = tuple(f"{b}.variance" for b in self.basis)
        names += ("mean",) if "mean" in self.priors else ()
        return (*names, "freedom") if self.run_scales else names

    def parameters(self, geometry: Geometry) -> tuple[Parameter, ...]:
        """All hyperparameters in the order in which the sampler visits them."""
        found = [Parameter(name, self.priors[name], "level", name != "mean") for name in self.level_names()]
        found += [Parameter(name, self.priors[name], "time") for name in self.time_names()]
        found += [Parameter("luck", self.priors["luck"], "space")] if "luck" in self.priors else []
        for g in range(geometry.count):
            found += self._dimension(g, [c for c, group in enumerate(geometry.lengths) if group == g], geometry)
        return tuple(found)

    def _dimension(self, group: int, columns: list[int], geometry: Geometry) -> list[Parameter]:
        """A length scale and the warps of its columns: they say much the same, so they move together if they can."""
        together = all(isinstance(p, LogNormal) and p.floor == 0 for p in (self.length_prior, self.warp_prior))
        block = f"dimension.{group}" if together else ""
        found = [Parameter(f"length.{group}", self.length_prior, "space", block=block)]
        if self.warp_prior is not None:
            names = [f"warp.{ab}.{c}" for c in columns if geometry.warped[c] for ab in "ab"]
            found += [Parameter(name, self.warp_prior, "space", block=block) for name in names]
        return found

    def time_model(self, values: Values) -> TimeModel:
        """The functions of time at these values."""
        functions = [BASIS[name][0] for name in self.basis]
        kernels = [RESIDUAL[name][0] for name in self.residual]

        def basis(t: Array) -> Array:
            return np.stack([h(t, values, self.horizon) for h in functions], axis=-1)

        def covariance(t: Array, u: Array) -> Array:
            K = kernels[0](t, u, values)
            for kernel in kernels[1:]:
                K = K + kernel(t, u, values)
            return K

        return TimeModel(basis, covariance, values["noise"])

    def coefficient_variances(self, values: Values) -> Array:
        """(q,) amplitudes of the coefficients over configurations."""
        return np.array([values[f"{b}.variance"] for b in self.basis])

    def coefficient_means(self, values: Values) -> Array:
        """(q,) prior means of the coefficients."""
        means = [self.mean_location.get(b, 0.0) for b in self.basis]
        if "mean" in values:
            means[0] += values["mean"]
        return np.array(means)

    def scale_model(self, values: Values) -> ScaleModel:
        """How the scales of runs are distributed: more than 2 degrees of freedom, so that variances exist."""
        return ScaleModel(2.0 + values["freedom"] if self.run_scales else math.inf, values["noise"])

    def coefficient_mean_variances(self) -> Array:
        """(q,) variances of those means, integrated out."""
        return np.array([self.mean_variance.get(b, 0.0) for b in self.basis])


def paper(mean_range: tuple[float, float]) -> Specification:
    """Swersky, Snoek and Adams (2014), with the priors of their appendix; losses come with unit variance."""
    standard = LogNormal(0.0, 1.0)
    return Specification(
        name="paper",
        basis=("level",),
        residual=("decay",),
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
    """The default: level, drop and drift over configurations, a smooth residual in log time, scales of runs."""

    def scale(typical: float, spread: float) -> LogNormal:
        """Prior of a variance from that of its square root."""
        return LogNormal(2 * math.log(typical), 2 * spread)

    return Specification(
        name="drift",
        basis=("level", "drop", "drift"),
        residual=("smooth",),
        priors={
            # on 37 tables of four kinds looked at together, first and last losses vary by about one model unit
            "level.variance": scale(0.9, 0.4),
            "drop.variance": scale(0.8, 0.5),
            "drift.variance": scale(0.2, 0.7),
            "alpha": LogNormal(0.0, 0.7),
            "beta": LogNormal(math.log(2.0), 1.0),
            "smooth.variance": scale(0.2, 1.0),
            "smooth.length": LogNormal(math.log(1.5), 0.7),
            "noise": LogNormal(2 * math.log(0.03), 3.0, NOISE_FLOOR),
            "freedom": LogNormal(math.log(4.0), 0.7),
        },
        # distances grow with the number of hyperparameters; so do the lengths on which losses vary
        length_prior=LogNormal(math.log(0.7) + 0.5 * math.log(max(dimensions, 3) / 3), 1.0),
        warp_prior=LogNormal(0.0, 0.5),
        horizon=horizon,
        mean_variance={"level": 1.0, "drop": 1.0, "drift": 0.1},
        run_scales=True,
    )


def luck(dimensions: int, horizon: float) -> Specification:
    """The default where configurations are run repeatedly: what is a run's own luck can be told from those repeats."""
    default = drift(dimensions, horizon)
    return replace(default, name="luck", priors={**default.priors, "luck": LogNormal(math.log(0.1), 1.5)})
