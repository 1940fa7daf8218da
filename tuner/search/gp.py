"""A Gaussian process over lattice points: fitted by maximum a posteriori, robust to outliers and to degenerate data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from tuner.search.kernels import Array, Hyperparameters, Kernel
from tuner.search.lattice import Points

_JITTER = 1e-6
_BOUNDS = (-10.0, 6.0)
_MAX_ITERATIONS = 40
_SMALLEST_SCALE = 0.01
"""Data that vary less than 1 % are not blown up to unit variance: that would be fitting noise."""

_OUTLIER_SIGMAS = 3.5
_OUTLIER_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class _Prior:
    """Normal priors on the log hyperparameters, for data of unit variance."""

    center: Array
    width: Array

    @classmethod
    def of(cls, kernel: Kernel) -> _Prior:
        d = kernel.dimensions
        similar = np.where(kernel.categorical, np.log(3.0), np.log(4.0))
        center = Hyperparameters(
            main=np.full(d, np.log(0.1)),
            main_decay=similar,
            joint_decay=np.full(d, np.log(0.3)),
            joint=float(np.log(0.3)),
            noise=float(np.log(0.01)),
            doubt=float(np.log(0.05)),
        )
        width = Hyperparameters(
            main=np.full(d, 1.5),
            main_decay=np.full(d, 0.8),
            joint_decay=np.full(d, 1.5),
            joint=1.0,
            noise=1.0,
            doubt=1.5,
        )
        return cls(center.pack(), width.pack())


class GaussianProcess:
    """The posterior of one objective.

    Args:
        kernel: of the lattice.
        points: where it was measured, shape (n, axes); repeats are welcome.
        values: log values, shape (n,), finite.
        noise: further variance of each value beside the launch noise that is fitted, shape (n,), in squared log units.
        hints: which values come from an earlier study; their extra variance is fitted.
        fit_on: at most so many of the last points are used to fit the hyperparameters.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: Points,
        values: Array,
        *,
        noise: Array | None = None,
        hints: Array | None = None,
        fit_on: int = 150,
    ) -> None:
        n = len(values)
        self._kernel = kernel
        self._hot = kernel.one_hot(points)
        self._center = float(np.median(values))
        spread = float(values.std())
        self._scale = max(spread, _SMALLEST_SCALE)
        self._y = (values - self._center) / self._scale
        self._extra = np.zeros(n) if noise is None else noise / self._scale**2
        self._hints = np.zeros(n) if hints is None else hints.astype(float)
        self._prior = _Prior.of(kernel)
        self.theta = Hyperparameters.unpack(self._fit(min(fit_on, n)))
        self._factorise()
        for _ in range(_OUTLIER_ROUNDS):
            if not self._discount_outliers():
                break
            self._factorise()

    def _noise(self, theta: Hyperparameters, last: int) -> Array:
        return np.exp(theta.noise) + np.exp(theta.doubt) * self._hints[-last:] + self._extra[-last:] + _JITTER

    def _fit(self, last: int) -> Array:
        hot, y = self._hot[-last:], self._y[-last:]
        start = self._prior.center

        def loss(vector: Array) -> tuple[float, Array]:
            theta = Hyperparameters.unpack(vector)
            noise = self._noise(theta, last)
            k = self._kernel.between(theta, hot, hot)
            k[np.diag_indices(last)] += noise
            away = (vector - self._prior.center) / self._prior.width
            try:
                lower = cholesky(k, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                return 1e10, away / self._prior.width
            alpha = cho_solve((lower, True), y, check_finite=False)
            inverse = cho_solve((lower, True), np.eye(last), check_finite=False)
            weight = 0.5 * (inverse - np.outer(alpha, alpha))
            main, main_decay, joint_decay, joint = self._kernel.gradient(theta, hot, weight)
            diagonal = np.diag(weight)
            slope = Hyperparameters(
                main, main_decay, joint_decay, joint,
                float(diagonal.sum() * np.exp(theta.noise)),
                float((diagonal * self._hints[-last:]).sum() * np.exp(theta.doubt)),
            ).pack()  # fmt: skip
            value = 0.5 * float(y @ alpha) + float(np.log(np.diag(lower)).sum()) + 0.5 * float(away @ away)
            return value, slope + away / self._prior.width

        found = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[_BOUNDS] * len(start),
            options={"maxiter": _MAX_ITERATIONS},
        )
        best: Array = found.x if np.isfinite(found.fun) else start
        return best

    def _factorise(self) -> None:
        n = len(self._y)
        k = self._kernel.between(self.theta, self._hot, self._hot)
        k[np.diag_indices(n)] += self._noise(self.theta, n)
        self._lower = cholesky(k, lower=True, check_finite=False)
        self._alpha = cho_solve((self._lower, True), self._y, check_finite=False)

    def _discount_outliers(self) -> bool:
        """Widen the noise of points that the others contradict (leave-one-out; Rasmussen & Williams 2006, eq. 5.12)."""
        n = len(self._y)
        if n < 8:
            return False
        precision = np.diag(cho_solve((self._lower, True), np.eye(n), check_finite=False))
        residual = self._alpha / precision
        odd = np.abs(residual) * np.sqrt(precision) > _OUTLIER_SIGMAS
        if not odd.any():
            return False
        self._extra = self._extra + np.where(odd, residual**2, 0.0)
        return True

    def expect(self, points: Points) -> None:
        """Count launches on their way as done, with the predicted result: their neighbourhood teaches less (kriging believer;
        Ginsbourger, Le Riche & Carraro 2010).
        """
        if not len(points):
            return
        mean, _ = self.predict(points)
        self._hot = np.concatenate([self._hot, self._kernel.one_hot(points)])
        self._y = np.concatenate([self._y, (mean - self._center) / self._scale])
        self._extra = np.concatenate([self._extra, np.zeros(len(points))])
        self._hints = np.concatenate([self._hints, np.zeros(len(points))])
        self._factorise()

    @property
    def launch_noise(self) -> float:
        """Standard deviation of one launch, in log units (a share of the value)."""
        return float(np.sqrt(np.exp(self.theta.noise) + _JITTER) * self._scale)

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and standard deviation of the noise-free log value; each of shape (points,)."""
        hot = self._kernel.one_hot(points)
        cross = self._kernel.between(self.theta, hot, self._hot)
        mean = cross @ self._alpha
        solved = solve_triangular(self._lower, cross.T, lower=True, check_finite=False)
        variance = np.maximum(self._kernel.variance(self.theta) - (solved**2).sum(axis=0), 1e-8)
        return mean * self._scale + self._center, np.sqrt(variance) * self._scale

    def effect_uncertainty(self, axes: Points, values: Points, baseline: Points) -> Array:
        """Standard deviation of the additive effect of values against others of the same axes, in log units; shape (axes,)."""
        rows, others = self._kernel.column(axes, values), self._kernel.column(axes, baseline)
        cross, table = self._kernel.main_effect(self.theta, self._hot)
        solved = solve_triangular(self._lower, (cross[rows] - cross[others]).T, lower=True, check_finite=False)
        prior = table[rows, rows] + table[others, others] - 2 * table[rows, others]
        sd: Array = np.sqrt(np.maximum(prior - (solved**2).sum(axis=0), 0.0)) * self._scale
        return sd

    def joint(self, points: Points) -> tuple[Array, Array]:
        """Mean and covariance of the noise-free log values; shapes (points,) and (points, points)."""
        hot = self._kernel.one_hot(points)
        cross = self._kernel.between(self.theta, hot, self._hot)
        solved = solve_triangular(self._lower, cross.T, lower=True, check_finite=False)
        covariance = self._kernel.between(self.theta, hot, hot) - solved.T @ solved
        mean: Array = cross @ self._alpha * self._scale + self._center
        scaled: Array = covariance * self._scale**2
        return mean, scaled
