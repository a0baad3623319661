"""Priors of the hyperparameters: densities and samplers (paper: appendix B)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import exp1

Array = NDArray[np.float64]

LOG_2PI = math.log(2 * math.pi)


class Prior(Protocol):
    """A univariate distribution."""

    def log_density(self, x: ArrayLike) -> Array:
        """Log of the normalised density at x; minus infinity outside the support."""

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) independent draws."""

    def nearest(self, x: ArrayLike) -> Array:
        """The value with positive density that is nearest to x."""


@dataclass(frozen=True)
class LogNormal:
    """log x is normal with mean `location` and standard deviation `scale`, truncated to x > floor."""

    location: float
    scale: float
    floor: float = 0.0

    def log_density(self, x: ArrayLike) -> Array:
        """Log density at x, normalised on x > floor."""
        x = np.asarray(x, dtype=np.float64)
        log_x = np.log(np.where(x > self.floor, x, 1.0))
        z = (log_x - self.location) / self.scale
        inside = -0.5 * z * z - log_x - math.log(self.scale * self._mass_above_floor()) - 0.5 * LOG_2PI
        return np.where(x > self.floor, inside, -np.inf)

    def _mass_above_floor(self) -> float:
        if self.floor == 0:
            return 1.0
        return 0.5 * math.erfc((math.log(self.floor) - self.location) / (self.scale * math.sqrt(2)))

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) independent draws."""
        return _above(self.floor, lambda n: np.exp(self.location + self.scale * rng.standard_normal(n)), count)

    def nearest(self, x: ArrayLike) -> Array:
        """Above the floor."""
        return np.maximum(x, max(self.floor * (1 + 1e-9), 1e-300))


@dataclass(frozen=True)
class Normal:
    """Normal with mean `location` and standard deviation `scale`."""

    location: float
    scale: float

    def log_density(self, x: ArrayLike) -> Array:
        """Log density at x."""
        z = (np.asarray(x, dtype=np.float64) - self.location) / self.scale
        return np.asarray(-0.5 * z * z - math.log(self.scale) - 0.5 * LOG_2PI)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) independent draws."""
        return rng.normal(self.location, self.scale, count)

    def nearest(self, x: ArrayLike) -> Array:
        """Every value has positive density."""
        return np.asarray(x, dtype=np.float64)


@dataclass(frozen=True)
class Uniform:
    """Constant between `lower` and `upper`; lower = upper fixes the value."""

    lower: float
    upper: float

    def log_density(self, x: ArrayLike) -> Array:
        """Log density at x; zero if the value is fixed."""
        x = np.asarray(x, dtype=np.float64)
        inside = -math.log(self.upper - self.lower) if self.upper > self.lower else 0.0
        return np.where((self.lower <= x) & (x <= self.upper), inside, -np.inf)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) independent draws."""
        return rng.uniform(self.lower, self.upper, count)

    def nearest(self, x: ArrayLike) -> Array:
        """Within the range."""
        return np.clip(x, self.lower, self.upper)


@dataclass(frozen=True)
class Horseshoe:
    """The exact horseshoe density on s > floor: |s| of N(0, (lambda tau)^2) with lambda half-Cauchy (Carvalho 2009).

    Integrating lambda out gives a density proportional to e^z E1(z) with z = s^2 / (2 tau^2).
    """

    tau: float
    floor: float = 1e-8

    def log_density(self, x: ArrayLike) -> Array:
        """Log density at x, normalised on x > floor."""
        x = np.asarray(x, dtype=np.float64)
        constant = math.log(2.0) - 1.5 * math.log(math.pi) - 0.5 * math.log(2.0) - math.log(self.tau)
        z = 0.5 * (np.maximum(x, self.floor) / self.tau) ** 2
        inside = constant + _log_scaled_exp1(z) - math.log1p(-self._mass_below_floor())
        return np.where(x > self.floor, inside, -np.inf)

    def _mass_below_floor(self) -> float:
        # near zero e^z E1(z) = -gamma - log z + O(z log z); its integral from 0 to the floor in s
        f = self.floor
        density = 2.0 / (math.sqrt(2.0 * math.pi**3) * self.tau)
        return density * f * (2.0 - float(np.euler_gamma) - math.log(0.5 * (f / self.tau) ** 2))

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) independent draws."""
        return _above(self.floor, lambda n: np.abs(self.tau * rng.standard_cauchy(n) * rng.standard_normal(n)), count)

    def nearest(self, x: ArrayLike) -> Array:
        """Above the floor."""
        return np.maximum(x, max(self.floor * (1 + 1e-9), 1e-300))


def _above(floor: float, draw: Callable[[int], Array], count: int) -> Array:
    """Draws above the floor, by rejection."""
    x = draw(count)
    while (low := np.flatnonzero(x <= floor)).size:
        x[low] = draw(len(low))
    return x


def _log_scaled_exp1(z: Array) -> Array:
    """log(e^z E1(z)) without overflow: the asymptotic series beyond z = 100, where its error is below 1e-15."""
    large = np.maximum(z, 100.0)
    series, term = np.ones_like(large), np.ones_like(large)
    for k in range(1, 9):
        term = term * (-k / large)
        series = series + term
    small = np.minimum(z, 100.0)
    return np.where(z < 100.0, small + np.log(exp1(small)), np.log(series) - np.log(large))
