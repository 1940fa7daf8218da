"""A Gaussian process over lattice points: robust to outliers and to degenerate data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from tuner.search.fit import JITTER, Data, Fit, fit
from tuner.search.kernels import Array, Kernel
from tuner.search.lattice import Points

_OUTLIER_SIGMAS = 3.5
_OUTLIER_ROUNDS = 2
_FEW = 8
"""With fewer values nobody can say which one is odd."""


def data_of(
    kernel: Kernel, points: Points, values: Array, *, noise: Array | None = None, hints: Array | None = None
) -> Data:
    """Points and values as data for a model; noise and hints are none unless given (see `Data`)."""
    zeros = np.zeros(len(values))
    told = zeros if hints is None else hints.astype(np.float64)
    return Data(kernel.one_hot(points), values, zeros if noise is None else noise, told)


class GaussianProcess:
    """The posterior of one objective.

    Args:
        kernel: of the lattice.
        data: where it was measured; repeats are welcome.
        fitted: hyperparameters from earlier; None fits them to the data.
    """

    def __init__(self, kernel: Kernel, data: Data, fitted: Fit | None = None) -> None:
        self._kernel = kernel
        self._data = data
        self._fit = fitted or fit(kernel, data)
        self._scale = self._fit.scale
        self._factorise()
        for _ in range(_OUTLIER_ROUNDS):
            if not self._discount_outliers():
                break
            self._factorise()

    def _factorise(self) -> None:
        data, k = self._data, self._kernel.between(self._fit.theta, self._data.hot, self._data.hot)
        k[np.diag_indices(len(k))] += self._fit.variances(data)
        self._lower = cholesky(k, lower=True, check_finite=False)
        self._alpha = cho_solve((self._lower, True), self._scale.scaled(data.values), check_finite=False)

    def _discount_outliers(self) -> bool:
        """Widen the noise of values that the others contradict (leave-one-out; Rasmussen & Williams 2006, eq. 5.12)."""
        n = len(self._alpha)
        if n < _FEW:
            return False
        precision = np.diag(cho_solve((self._lower, True), np.eye(n), check_finite=False))
        residual = self._alpha / precision
        odd = np.abs(residual) * np.sqrt(precision) > _OUTLIER_SIGMAS
        if not odd.any():
            return False
        logs = residual * self._scale.size / self._scale.stretch(self._data.values)
        wider = self._data.noise + np.where(odd, logs**2, 0.0)
        self._data = replace(self._data, noise=wider)
        return True

    def expect(self, points: Points) -> None:
        """Count launches on their way as done, with the predicted result, so that their neighbourhood teaches less.

        (Kriging believer; Ginsbourger, Le Riche & Carraro 2010.)
        """
        if not len(points):
            return
        mean, _ = self.predict(points)
        more, old = data_of(self._kernel, points, mean), self._data
        self._data = Data(
            np.concatenate([old.hot, more.hot]),
            np.concatenate([old.values, more.values]),
            np.concatenate([old.noise, more.noise]),
            np.concatenate([old.hints, more.hints]),
        )
        self._factorise()

    @property
    def launch_noise(self) -> float:
        """Standard deviation of one launch, in log units (a share of the value)."""
        return float(np.sqrt(np.exp(self._fit.theta.noise) + JITTER) * self._scale.size)

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and standard deviation of the noise-free log value; each of shape (points,)."""
        hot = self._kernel.one_hot(points)
        mean, solved = self._mean_and_solved(hot)
        variance = np.maximum(self._kernel.variance(self._fit.theta) - (solved**2).sum(axis=0), 1e-8)
        logs, slope = self._scale.logs(mean)
        return logs, np.sqrt(variance) * slope

    def joint(self, points: Points) -> tuple[Array, Array]:
        """Mean and covariance of the noise-free log values; shapes (points,) and (points, points)."""
        hot = self._kernel.one_hot(points)
        mean, solved = self._mean_and_solved(hot)
        covariance: Array = self._kernel.between(self._fit.theta, hot, hot) - solved.T @ solved
        logs, slope = self._scale.logs(mean)
        return logs, covariance * np.outer(slope, slope)

    def gap(self, points: Points, other: Points) -> Array:
        """Standard deviation of the noise-free difference in log value to another point; shape (points,)."""
        hot = self._kernel.one_hot(np.concatenate([points, other[None]]))
        mean, solved = self._mean_and_solved(hot)
        _, slope = self._scale.logs(mean)
        sd = np.sqrt(np.maximum(self._kernel.variance(self._fit.theta) - (solved**2).sum(axis=0), 1e-8)) * slope
        shared = self._kernel.between(self._fit.theta, hot[:-1], hot[-1:])[:, 0] - solved[:, :-1].T @ solved[:, -1]
        variance = sd[:-1] ** 2 + sd[-1] ** 2 - 2 * shared * slope[:-1] * slope[-1]
        return np.asarray(np.sqrt(np.maximum(variance, 1e-8)))

    def _mean_and_solved(self, hot: Array) -> tuple[Array, Array]:
        cross = self._kernel.between(self._fit.theta, hot, self._data.hot)
        mean: Array = cross @ self._alpha
        return mean, solve_triangular(self._lower, cross.T, lower=True, check_finite=False)

    def effect_uncertainty(self, axes: Points, values: Points, baseline: Points) -> Array:
        """Standard deviation of the additive effect of values against others of the same axes, in log units."""
        rows, others = self._kernel.column(axes, values), self._kernel.column(axes, baseline)
        cross, table = self._kernel.main_effect(self._fit.theta, self._data.hot)
        solved = solve_triangular(self._lower, (cross[rows] - cross[others]).T, lower=True, check_finite=False)
        prior = table[rows, rows] + table[others, others] - 2 * table[rows, others]
        sd: Array = np.sqrt(np.maximum(prior - (solved**2).sum(axis=0), 0.0)) * self._scale.size
        return sd
