"""The dense twin: one Gaussian process over all observations, written to be read. O((N T)^3), nothing clever.

Every quantity of the package's model is recomputed here from the joint covariance

    cov(y_n(t), y_m(u)) = k_nm sum_j a_j h_j(t) h_j(u) + sum_j tau_j h_j(t) h_j(u) + [n = m] s_n^2 k_t(t, u)

with k_nm = (k_x(x_n, x_m) + [n = m] luck) / (1 + luck), and compared. It shares the kernels' formulas with no line of
the package.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import beta as beta_distribution


def correlation(x, z, lengths, warps):
    r2 = np.zeros((len(x), len(z)))
    for d in range(x.shape[1]):
        w = beta_distribution(*warps[d]).cdf
        r2 += ((w(x[:, d])[:, None] - w(z[:, d])[None, :]) / lengths[d]) ** 2
    return (1 + np.sqrt(5 * r2) + 5 / 3 * r2) * np.exp(-np.sqrt(5 * r2))


class Dense:
    """`points` are (config, epoch, run) triples; two points of the same run share its residual process."""

    def __init__(self, basis, residual, noise, means, variances, mean_variances, lengths, warps, scales, luck=0.0):
        self.basis, self.residual, self.noise = basis, residual, noise
        self.means, self.variances, self.mean_variances = means, variances, mean_variances
        self.lengths, self.warps, self.scales, self.luck = lengths, warps, scales, luck

    def covariance(self, a, b):
        xa, xb = np.array([p[0] for p in a]), np.array([p[0] for p in b])
        ta, tb = np.array([p[1] for p in a]), np.array([p[1] for p in b])
        ra, rb = np.array([p[2] for p in a]), np.array([p[2] for p in b])
        ha, hb = self.basis(ta), self.basis(tb)
        same = ra[:, None] == rb[None, :]
        scale = np.array([self.scales.get(r, 1.0) for r in ra])[:, None]
        correlated = (correlation(xa, xb, self.lengths, self.warps) + same * self.luck) / (1.0 + self.luck)
        return (
            correlated * ((ha * self.variances) @ hb.T)
            + (ha * self.mean_variances) @ hb.T
            + same * scale * self.residual(ta, tb)
        )

    def noise_of(self, points):
        return np.diag([self.noise * self.scales.get(p[2], 1.0) for p in points])

    def mean(self, points):
        return self.basis(np.array([p[1] for p in points])) @ self.means

    def condition(self, seen, y):
        """Remember the observations; returns the log evidence and the covariance's condition number."""
        K = self.covariance(seen, seen) + self.noise_of(seen)
        self.seen, self.K, self.error = seen, K, y - self.mean(seen)
        sign, log_determinant = np.linalg.slogdet(K)
        assert sign > 0
        quadratic = self.error @ np.linalg.solve(K, self.error)
        self.condition_number = np.linalg.cond(K)
        return -0.5 * (quadratic + log_determinant + len(y) * np.log(2 * np.pi))

    def predict(self, points, noise=False):
        cross = self.covariance(points, self.seen)
        mean = self.mean(points) + cross @ np.linalg.solve(self.K, self.error)
        covariance = self.covariance(points, points) - cross @ np.linalg.solve(self.K, cross.T)
        return mean, covariance + (self.noise_of(points) if noise else 0.0)
