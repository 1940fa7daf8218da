"""Fitting the kernel to data: the most probable hyperparameters under weak priors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from tuner.search.kernels import Array, Hyperparameters, Kernel
from tuner.search.scale import Scale, bends_for

JITTER = 1e-6
_BOUNDS = (-10.0, 6.0)
_MAX_ITERATIONS = 40

_BY_SPREAD = 1.5
"""Width of the priors of own effects where the unit is the spread of the data."""

_BY_AMPLITUDE = 1.0
"""The same where it is their amplitude, which is a better guess of how large effects are."""


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
    """Hyperparameters, and the scale of the data that they belong to."""

    theta: Hyperparameters
    scale: Scale

    def variances(self, data: Data) -> Array:
        """Noise variance of each value, in scaled units; the launch noise is even on the log scale."""
        doubt = np.exp(self.theta.doubt) * data.hints
        even = np.exp(self.theta.noise) + doubt + data.noise / self.scale.size**2
        return np.asarray(even * self.scale.stretch(data.values) ** 2 + JITTER, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Priors:
    """Normal priors on the log hyperparameters; variances are in squared units of the scale.

    Attributes:
        middle: packed centres.
        width: packed standard deviations.
    """

    middle: Array
    width: Array

    @property
    def penalty(self) -> float:
        """What makes posteriors under priors of different width comparable: minus the log of their normalisation."""
        return float(np.log(self.width).sum())


def fit(kernel: Kernel, data: Data) -> Fit:
    """The maximum a posteriori on the likeliest scale and unit; where that cannot be found, the priors' centres."""
    used = np.flatnonzero(data.hot.any(axis=0))
    kernel, data = kernel.on_columns(used), replace(data, hot=data.hot[:, used])
    start = _priors(kernel, _BY_SPREAD).middle
    best, least = Fit(Hyperparameters.unpack(start), Scale.of(data.values, 0.0)), np.inf
    for scale, priors in _alternatives(kernel, data):
        found, loss = _most_probable(kernel, data, scale, priors, start)
        loss += scale.penalty(data.values) + priors.penalty
        if np.isfinite(loss):
            start = found
            if loss < least:
                best, least = Fit(Hyperparameters.unpack(found), scale), loss
    return best


def _alternatives(kernel: Kernel, data: Data) -> Iterator[tuple[Scale, Priors]]:
    """Scales and the priors that go with their unit: the spread of the data, and their amplitude.

    Points that each change one knob show one effect at a time, so that effects are much larger than the spread of such
    data; the amplitude says by how much, if the centres of the priors are right about everything else.
    """
    for bend in bends_for(data.values):
        scale = Scale.of(data.values, bend)
        yield scale, _priors(kernel, _BY_SPREAD)
        yield scale.resized(_amplitude(kernel, data, scale)), _priors(kernel, _BY_AMPLITUDE)


def _amplitude(kernel: Kernel, data: Data, scale: Scale) -> float:
    """How many times as much the data vary as the priors' centres expect of these very points.

    It is the maximum-likelihood estimate of a factor common to all standard deviations (of a process' variance: Jones,
    Schonlau & Welch 1998).
    """
    centers = Hyperparameters.unpack(_priors(kernel, _BY_AMPLITUDE).middle)
    k = kernel.between(centers, data.hot, data.hot)
    k[np.diag_indices(len(k))] += Fit(centers, scale).variances(data)
    lower = cholesky(k, lower=True, check_finite=False)
    whitened = solve_triangular(lower, scale.scaled(data.values), lower=True, check_finite=False)
    return float(np.sqrt(np.mean(whitened**2)))


def _most_probable(kernel: Kernel, data: Data, scale: Scale, priors: Priors, start: Array) -> tuple[Array, float]:
    """The packed hyperparameters with the largest posterior on one scale, and minus its logarithm."""
    y, n = scale.scaled(data.values), len(data.values)
    stretched = scale.stretch(data.values) ** 2

    def loss(vector: Array) -> tuple[float, Array]:
        theta = Hyperparameters.unpack(vector)
        k = kernel.between(theta, data.hot, data.hot)
        k[np.diag_indices(n)] += Fit(theta, scale).variances(data)
        away = (vector - priors.middle) / priors.width
        try:
            lower = cholesky(k, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, away / priors.width
        alpha = cho_solve((lower, True), y, check_finite=False)
        inverse = cho_solve((lower, True), np.eye(n), check_finite=False)
        weight = 0.5 * (inverse - np.outer(alpha, alpha))
        diagonal = np.diag(weight) * stretched
        noise = float(diagonal.sum() * np.exp(theta.noise))
        doubt = float((diagonal * data.hints).sum() * np.exp(theta.doubt))
        slope = Hyperparameters(*kernel.gradient(theta, data.hot, weight), noise, doubt).pack()
        value = 0.5 * float(y @ alpha) + float(np.log(np.diag(lower)).sum()) + 0.5 * float(away @ away)
        return value, slope + away / priors.width

    bounds = [_BOUNDS] * len(start)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MAX_ITERATIONS})
    return np.asarray(found.x, dtype=np.float64), float(found.fun)


def _priors(kernel: Kernel, own_effects: float) -> Priors:
    """Weak priors; `own_effects` is the width of those of the knobs' own effects."""
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
    width = Hyperparameters(
        main=np.full(d, own_effects),
        main_decay=np.full(d, 0.8),
        joint_decay=np.full(d, 1.5),
        joint=1.0,
        noise=1.0,
        doubt=1.5,
    )
    return Priors(middle.pack(), width.pack())
