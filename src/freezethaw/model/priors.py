"""Priors of the hyperparameters: densities and samplers (paper: appendix B)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import exp1

LOG_2PI = math.log(2 * math.pi)


class Prior(Protocol):
    """A univariate distribution."""

    def log_density(self, x: float) -> float:
        """Log of the normalised density at x; minus infinity outside the support."""

    def sample(self, rng: np.random.Generator) -> float:
        """One draw."""

    def nearest(self, x: float) -> float:
        """The value with positive density that is nearest to x."""


@dataclass(frozen=True)
class LogNormal:
    """log x is normal with mean `location` and standard deviation `scale`, truncated to x > floor."""

    location: float
    scale: float
    floor: float = 0.0

    def log_density(self, x: float) -> float:
        """Log density at x, normalised on x > floor."""
        if x <= self.floor:
            return -math.inf
        z = (math.log(x) - self.location) / self.scale
        return -0.5 * z * z - math.log(x * self.scale) - 0.5 * LOG_2PI - math.log(self._mass_above_floor())

    def _mass_above_floor(self) -> float:
        if self.floor == 0:
            return 1.0
        return 0.5 * math.erfc((math.log(self.floor) - self.location) / (self.scale * math.sqrt(2)))

    def sample(self, rng: np.random.Generator) -> float:
        """One draw."""
        while True:
            x = math.exp(self.location + self.scale * float(rng.standard_normal()))
            if x > self.floor:
                return x

    def nearest(self, x: float) -> float:
        """Above the floor."""
        return max(x, self.floor * (1 + 1e-9), 1e-300)


@dataclass(frozen=True)
class Uniform:
    """Constant between `lower` and `upper`; lower = upper fixes the value."""

    lower: float
    upper: float

    def log_density(self, x: float) -> float:
        """Log density at x; zero if the value is fixed."""
        if not self.lower <= x <= self.upper:
            return -math.inf
        return -math.log(self.upper - self.lower) if self.upper > self.lower else 0.0

    def sample(self, rng: np.random.Generator) -> float:
        """One draw."""
        return float(rng.uniform(self.lower, self.upper))

    def nearest(self, x: float) -> float:
        """Within the range."""
        return min(max(x, self.lower), self.upper)


@dataclass(frozen=True)
class Horseshoe:
    """The exact horseshoe density on s > floor: |s| of N(0, (lambda tau)^2) with lambda half-Cauchy (Carvalho 2009).

    Integrating lambda out gives a density proportional to e^z E1(z) with z = s^2 / (2 tau^2).
    """

    tau: float
    floor: float = 1e-8

    def log_density(self, x: float) -> float:
        """Log density at x, normalised on x > floor."""
        if x <= self.floor:
            return -math.inf
        constant = math.log(2.0) - 1.5 * math.log(math.pi) - 0.5 * math.log(2.0) - math.log(self.tau)
        return constant + _log_scaled_exp1(0.5 * (x / self.tau) ** 2) - math.log1p(-self._mass_below_floor())

    def _mass_below_floor(self) -> float:
        # near zero e^z E1(z) = -gamma - log z + O(z log z); its integral from 0 to the floor in s
        f = self.floor
        density = 2.0 / (math.sqrt(2.0 * math.pi**3) * self.tau)
        return density * f * (2.0 - float(np.euler_gamma) - math.log(0.5 * (f / self.tau) ** 2))

    def sample(self, rng: np.random.Generator) -> float:
        """One draw."""
        while True:
            s = abs(self.tau * float(rng.standard_cauchy()) * float(rng.standard_normal()))
            if s > self.floor:
                return s

    def nearest(self, x: float) -> float:
        """Above the floor."""
        return max(x, self.floor * (1 + 1e-9), 1e-300)


def _log_scaled_exp1(z: float) -> float:
    """log(e^z E1(z)) without overflow: the asymptotic series beyond z = 100, where its error is below 1e-15."""
    if z < 100.0:
        return z + math.log(float(exp1(z)))
    series, term = 1.0, 1.0
    for k in range(1, 9):
        term *= -k / z
        series += term
    return math.log(series) - math.log(z)
