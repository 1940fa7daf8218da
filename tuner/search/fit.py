"""Fitting the kernel to data: the most probable hyperparameters under weak priors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize

from tuner.search.kernels import Array, Hyperparameters, Kernel

JITTER = 1e-6
_BOUNDS = (-10.0, 6.0)
_MAX_ITERATIONS = 40
_SMALLEST_SCALE = 0.01
"""Data that vary less than 1 % are not blown up to unit variance: that would be fitting noise."""


@dataclass(frozen=True, slots=True)
class Data:
    """What a model is fitted to.

    Attributes:
        hot: one-hot rows of the points, shape (n, columns).
        values: log values, shape (n,), finite.
        noise: known variance of each value beside the launch noise, in squared log units, shape (n,).
        hints: 1 for values of an earlier study, else 0, shape (n,).
    """

    hot: Array
    values: Array
    noise: Array
    hints: Array

    def first(self, rows: int) -> Data:
        """The first rows only."""
        return Data(self.hot[:rows], self.values[:rows], self.noise[:rows], self.hints[:rows])

    def last(self, rows: int) -> Data:
        """The last rows only."""
        return Data(self.hot[-rows:], self.values[-rows:], self.noise[-rows:], self.hints[-rows:])


@dataclass(frozen=True, slots=True)
class Fit:
    """Hyperparameters of data that were centred and scaled."""

    theta: Hyperparameters
    center: float
    scale: float

    def variances(self, data: Data) -> Array:
        """Noise variance of each value, in scaled units."""
        doubt = np.exp(self.theta.doubt) * data.hints
        return np.asarray(np.exp(self.theta.noise) + doubt + data.noise / self.scale**2 + JITTER, dtype=np.float64)


def fit(kernel: Kernel, data: Data) -> Fit:
    """The maximum a posteriori; where that cannot be found, the priors' centres."""
    used = np.flatnonzero(data.hot.any(axis=0))
    kernel, hot = kernel.on_columns(used), data.hot[:, used]
    center = float(np.median(data.values))
    scale = max(float(data.values.std()), _SMALLEST_SCALE)
    y = (data.values - center) / scale
    n = len(y)
    middle, width = _priors(kernel)

    def loss(vector: Array) -> tuple[float, Array]:
        theta = Hyperparameters.unpack(vector)
        k = kernel.between(theta, hot, hot)
        k[np.diag_indices(n)] += Fit(theta, center, scale).variances(data)
        away = (vector - middle) / width
        try:
            lower = cholesky(k, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, away / width
        alpha = cho_solve((lower, True), y, check_finite=False)
        inverse = cho_solve((lower, True), np.eye(n), check_finite=False)
        weight = 0.5 * (inverse - np.outer(alpha, alpha))
        diagonal = np.diag(weight)
        noise = float(diagonal.sum() * np.exp(theta.noise))
        doubt = float((diagonal * data.hints).sum() * np.exp(theta.doubt))
        slope = Hyperparameters(*kernel.gradient(theta, hot, weight), noise, doubt).pack()
        value = 0.5 * float(y @ alpha) + float(np.log(np.diag(lower)).sum()) + 0.5 * float(away @ away)
        return value, slope + away / width

    found = minimize(
        loss, middle, jac=True, method="L-BFGS-B", bounds=[_BOUNDS] * len(middle), options={"maxiter": _MAX_ITERATIONS}
    )
    best = found.x if np.isfinite(found.fun) else middle
    return Fit(Hyperparameters.unpack(np.asarray(best, dtype=np.float64)), center, scale)


def _priors(kernel: Kernel) -> tuple[Array, Array]:
    """Centres and widths of normal priors on the log hyperparameters, for data of unit variance."""
    d = kernel.dimensions
    alike = np.where(kernel.categorical, np.log(3.0), np.log(4.0))
    middle = Hyperparameters(
        main=np.full(d, np.log(0.1)),
        main_decay=np.asarray(alike, dtype=np.float64),
        joint_decay=np.full(d, np.log(0.3)),
        joint=float(np.log(0.3)),
        noise=float(np.log(0.01)),
        doubt=float(np.log(0.05)),
    )
    width = Hyperparameters(np.full(d, 1.5), np.full(d, 0.8), np.full(d, 1.5), joint=1.0, noise=1.0, doubt=1.5)
    return middle.pack(), width.pack()
