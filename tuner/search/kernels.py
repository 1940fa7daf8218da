"""How alike two lattice points are: a sum of one-knob terms plus one product term.

On a log scale the effects of serving knobs are nearly additive, so most of what one launch teaches about a value
holds whatever the other knobs do. The additive part says that; the product part (a Matérn 5/2 over all knobs, each
with its own length scale; Rasmussen & Williams 2006, eq. 4.17) holds the interactions that the sum cannot. Additive
Gaussian processes: Duvenaud, Nickisch & Rasmussen 2011.

Points have few distinct values per knob, so each term is a small table over values; the matrix over points is a
product of one-hot matrices with those tables, and so are all gradients. That is what makes a fit cheap.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.search.lattice import Lattice, Points

Array = NDArray[np.float64]

MEAN_VARIANCE = 1.0
"""Variance of the unknown overall level, in units of the (scaled) data."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Logarithms of the kernel's parameters; shapes (axes,) or scalars.

    Attributes:
        main: variance of each knob's own effect.
        main_decay: inverse squared length scale of that effect.
        joint_decay: inverse squared length scale of each knob in the product part.
        joint: variance of the product part.
        noise: variance of one launch.
        doubt: further variance of hints from earlier studies.
    """

    main: Array
    main_decay: Array
    joint_decay: Array
    joint: float
    noise: float
    doubt: float

    def pack(self) -> Array:
        """All of them as one vector."""
        return np.concatenate([self.main, self.main_decay, self.joint_decay, [self.joint, self.noise, self.doubt]])

    @classmethod
    def unpack(cls, vector: Array) -> Hyperparameters:
        """The inverse of `pack`."""
        d = (len(vector) - 3) // 3
        main, main_decay, joint_decay = vector[:d], vector[d : 2 * d], vector[2 * d : 3 * d]
        return cls(main, main_decay, joint_decay, float(vector[-3]), float(vector[-2]), float(vector[-1]))


class Kernel:
    """The kernel of one lattice. `S` in comments is the one-hot matrix of points, shape (points, sum of axis sizes)."""

    def __init__(self, lattice: Lattice) -> None:
        self.dimensions = lattice.dimensions
        self.categorical = np.array([not axis.ordinal for axis in lattice.axes], dtype=bool)
        sizes = [len(axis.values) for axis in lattice.axes]
        self._offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self._total = int(sum(sizes))
        self._axis_of = np.repeat(np.arange(self.dimensions), sizes)
        self._own = self._axis_of[:, None] == self._axis_of[None, :]
        place = np.concatenate([np.array(axis.positions) for axis in lattice.axes])
        gap = (place[:, None] - place[None, :]) ** 2
        differs = (np.arange(self._total)[:, None] != np.arange(self._total)[None, :]).astype(float)
        nominal = self.categorical[self._axis_of]
        self._distance = np.where(self._own, np.where(nominal[:, None], differs, gap), 0.0)

    def on_columns(self, columns: Points) -> Kernel:
        """The same kernel for one-hot rows of which only some columns are kept, e.g. those of values in use."""
        smaller = copy.copy(self)
        smaller._axis_of = self._axis_of[columns]
        smaller._own = self._own[np.ix_(columns, columns)]
        smaller._distance = self._distance[np.ix_(columns, columns)]
        return smaller

    def one_hot(self, points: Points) -> Array:
        """Shape (points, sum of axis sizes)."""
        hot = np.zeros((len(points), self._total))
        np.put_along_axis(hot, points + self._offsets, 1.0, axis=1)
        return hot

    def column(self, axes: Points, values: Points) -> Points:
        """Column of the one-hot matrix for each pair of an axis and one of its indices."""
        columns: Points = self._offsets[axes] + values
        return columns

    def _main_table(self, theta: Hyperparameters) -> Array:
        scale, decay = np.exp(theta.main)[self._axis_of], np.exp(theta.main_decay)[self._axis_of]
        value, _ = self._matern(decay[:, None] * self._distance)
        return np.where(self._own, scale[:, None] * value, 0.0)

    def _joint_distance(self, theta: Hyperparameters) -> Array:
        return np.exp(theta.joint_decay)[self._axis_of][:, None] * self._distance

    @staticmethod
    def _matern(squared: Array) -> tuple[Array, Array]:
        """Matérn 5/2 of a squared scaled distance, and its derivative by that distance."""
        r = np.sqrt(5.0 * np.maximum(squared, 0.0))
        fall = np.exp(-r)
        return (1.0 + r + r * r / 3.0) * fall, -(5.0 / 6.0) * (1.0 + r) * fall

    def between(self, theta: Hyperparameters, a: Array, b: Array) -> Array:
        """Covariance of the noise-free function between one-hot rows; shape (len(a), len(b))."""
        joint, _ = self._matern(a @ self._joint_distance(theta) @ b.T)
        covariance: Array = MEAN_VARIANCE + a @ self._main_table(theta) @ b.T + np.exp(theta.joint) * joint
        return covariance

    def variance(self, theta: Hyperparameters) -> float:
        """Prior variance of the function at any point."""
        return float(MEAN_VARIANCE + np.exp(theta.main).sum() + np.exp(theta.joint))

    def main_effect(self, theta: Hyperparameters, hot: Array) -> tuple[Array, Array]:
        """The additive part of single values: covariance with rows, and among the values themselves.

        Shapes (sum of axis sizes, rows) and (sum of axis sizes, sum of axis sizes); values of different knobs are
        independent before any data.
        """
        table = self._main_table(theta)
        return table @ hot.T, table

    def gradient(self, theta: Hyperparameters, hot: Array, weight: Array) -> tuple[Array, Array, Array, float]:
        """Σ weight ∘ ∂K/∂θ for `main`, `main_decay`, `joint_decay` and `joint`; weight is symmetric, (rows, rows)."""
        by_value = hot.T @ weight @ hot
        apart = np.exp(theta.main_decay)[self._axis_of][:, None] * self._distance
        alike, falling = self._matern(apart)
        scale = np.exp(theta.main)[self._axis_of][:, None]
        main = self._per_axis(by_value * scale * alike)
        main_decay = self._per_axis(by_value * scale * falling * apart)
        scaled = self._joint_distance(theta)
        value, slope = self._matern(hot @ scaled @ hot.T)
        height = np.exp(theta.joint)
        joint_decay = self._per_axis((hot.T @ (weight * slope * height) @ hot) * scaled)
        return main, main_decay, joint_decay, float((weight * value).sum() * height)

    def _per_axis(self, by_value: Array) -> Array:
        rows = np.where(self._own, by_value, 0.0).sum(axis=1)
        summed: Array = np.bincount(self._axis_of, weights=rows, minlength=self.dimensions).astype(np.float64)
        return summed
