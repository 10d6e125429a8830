"""The reference in double precision, and how far from it a right kernel may come.

`Reference.check` compares C with alpha A B + beta C0: every element where the host can make the product
within a row's budget, otherwise drawn rows and columns, and a residual over all of C. Each figure is a
fraction of its bound: 1 or less is right. docs/verification.md says what they are, derives the bounds, and
names the sources. With u = eps / 2 of the type that sums are kept in, v that of C's type and d what a
multiplier may drop of an element (tf32: 2^-10), elements of the suite's own operands may be off by

    bound_ij = 8 (2 d + u sqrt(k + 4) + v) s_ij + e |A B|_ij

with s_ij^2 = alpha^2 (A.^2 B.^2)_ij + beta^2 C0_ij^2 and e a share that may be gone by no chance; a sum with
weights w by sqrt(sum w^2 bound^2) + e |sum w A B|. Of a user's matrices nothing is known: partial sums are
measured on drawn elements, the largest t and on average r, over s. Then

    bound_ij = 8 (u sqrt(k + 4) + v) t_ij + u (k + 4) r_ij

and errors may have a sign in common, so that the bound of a weighted sum is the sum of the bounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gemmbench.gemm.verify import stack
from gemmbench.model.dtypes import DTYPES, DType, HostArray, decode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check
from gemmbench.model.units import ceil_div

SAFETY = 8.0  # standard deviations allowed to rounding errors
DRAWN = 64  # rows and columns that are compared where not all of C is
_BLOCK = 512  # rows at a time, at most
_CACHED = 1 << 17  # elements at a time
_WIDTH = 64  # columns in a block of the residual
_MOST_ELEMENTS = 1 << 24  # of a C that is compared as a whole
_MOST_STEPPED = 1 << 23  # elements of A whose every step is looked at where C is not
_SHARE = 0.5  # of a row's budget that making the whole reference may take
_ELEMENTS = 128  # drawn to measure partial sums
_LANES = (1, 2, 4, 8, 16, 32, 64)  # orders of summation in which they are measured
_WALK = 5.0  # up to here a partial sum over s may be a random walk's
_CUT_SHORT = 2.0**-24  # eps / 2 of float: sums of such types may be cut short
_REASONS = 3  # that a sentence has
_HALF_A_UNIT = 0.5  # what a sum of integers may err by: nothing


@dataclass(frozen=True)
class Model:
    """What rounding does: see the module."""

    adding: float  # u
    storing: float  # v
    dropped: float  # d
    smallest: float  # what an operation may lose below the type's range
    steps: int  # k + 4: two more for alpha, one each for beta and for C
    cut: float = 0.0  # of sums that are cut short far above float's digits: see `_cut`
    largest: float = 0.0  # t over s; 0: the operands are the suite's own
    average: float = 0.0  # r over s; 0: |c| / 2

    @property
    def unit(self) -> float:
        """Of a bound that has no sign in common, over what is summed."""
        return SAFETY * (2 * self.dropped + self.adding * math.sqrt(self.steps) + self.storing)

    @property
    def share(self) -> float:
        """Of what is summed that may be gone by no chance."""
        lost = self.cut or self.adding * self.steps * (1.0 if self.adding <= _CUT_SHORT else self.adding)
        return 2 * self.dropped + 4 * (self.adding + self.storing) + lost

    @property
    def scaled(self) -> float:
        """The share of all of C together: what is cut off, in storing too, is half a unit on average."""
        return self.share - 3 * self.storing - self.cut / 2

    def bound(self, size: HostArray, product: HostArray, added: HostArray) -> HostArray:
        """Of elements.

        Args:
            size: |alpha| sqrt(A.^2 B.^2).
            product: alpha A B.
            added: beta C0.
        """
        if not self.largest:
            noise = self.unit * (np.hypot(size, added) if added.any() else size)
            return np.asarray(noise + self.share * np.abs(product), np.float64)
        magnitude = np.abs(product)
        largest = np.maximum(self.largest * size, magnitude) + np.abs(added)
        average = (self.average * size if self.average else magnitude / 2) + np.abs(added)
        return np.asarray(self.unit * largest + self.biased * average)

    @property
    def biased(self) -> float:
        """Of the partial sums' mean that rounding or, up to twice that, cutting them short may take away."""
        return (2 if self.cut else 1) * self.adding * self.steps


@dataclass(frozen=True)
class _Panel:
    """Rows and columns of C that are compared; rows and columns of A and B are scaled by powers of 2."""

    rows: HostArray
    columns: HostArray
    product: HostArray  # A B, scaled, in double precision
    size: HostArray  # sqrt(A.^2 B.^2), scaled
    powers: HostArray  # by step: the sum of (a_ip b_pj)^2 over the panel, scaled
    steps: HostArray  # of k whose shares in the residual are looked at


@dataclass
class _Sums:
    """What is added up over a panel, a block of rows at a time."""

    residual: HostArray  # of all elements, by which the shares of steps are told: see `_worst_step`
    columns: HostArray
    column_products: HostArray
    column_bounds: HostArray
    rp: float = 0.0  # sum of residual times product
    pp: float = 0.0
    ppbb: float = 0.0  # of product^2 bound^2
    bb: float = 0.0
    most: float = 0.0  # the largest bound


@dataclass
class _Findings:
    """The worst of each figure, and what is wrong."""

    figures: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, ratio: float, reason: str) -> None:
        """One figure; more than 1, or NaN, is wrong, and the first reason of its kind is kept."""
        if not ratio <= 1 and not self.figures.get(name, 0) > 1:
            self.reasons.append(reason)
        if np.isfinite(ratio):
            self.figures[name] = max(self.figures.get(name, 0.0), float(ratio))


class Reference:
    """alpha A B of one problem's operands, made once; see the module.

    Args:
        problem: the problem.
        a: m x k, as stored.
        b: k x n.
        generated: whether the operands are the suite's own random ones.
        budget_s: of the row: where the whole product takes too much of it, rows and columns are drawn.
        rng: draws them.
    """

    def __init__(
        self,
        problem: Gemm,
        a: HostArray,
        b: HostArray,
        generated: bool,
        budget_s: float,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._problem, self._a, self._b, self._generated = problem, a, b, generated
        self._rng = rng or np.random.default_rng()
        self._dtype = DTYPES[problem.dtype]
        self._row_scale = self._scales(a, 1)
        self._column_scale = self._scales(b, 0)
        elements = problem.m * problem.n
        whole_s = 1.5 * problem.flops / host_rate() if problem.flops > 1 << 24 else 0.0
        self.is_whole = elements <= _MOST_ELEMENTS and whole_s <= _SHARE * budget_s
        every = np.arange(problem.m), np.arange(problem.n)
        if self.is_whole:
            choices = [every]
        else:
            choices = [(self._drawn(problem.m), every[1]), (every[0], self._drawn(problem.n))]
        self._panels = [self._panel(*choice) for choice in choices] if elements else []
        self._partials = (0.0, 0.0) if generated or not elements else self._measured_partials()

    # --- making it ---

    def _scales(self, matrix: HostArray, axis: int) -> HostArray:
        """1 over the power of 2 at or below the largest element of each row (axis 1) or column."""
        most = np.zeros(matrix.shape[1 - axis])
        if not self._dtype.is_float:
            return most + 1
        for part in _parts(len(matrix)):
            block = np.abs(decode(matrix[part], self._dtype))
            if axis:
                most[part] = block.max(axis=1, initial=0)
            else:
                most = np.maximum(most, block.max(axis=0, initial=0))
        return np.asarray(np.ldexp(1.0, 1 - np.frexp(np.where(most > 0, most, 1.0))[1]))

    def _rows_of_b(self, part: Any, columns: HostArray) -> HostArray:
        block = self._b[part] if len(columns) == self._problem.n else self._b[part][:, columns]
        return np.asarray(decode(block, self._dtype) * self._column_scale[columns], np.float64)

    def _columns_of_a(self, rows: HostArray, steps: Any) -> HostArray:
        """In single precision; a user's are scaled."""
        stored = self._a[:, steps] if len(rows) == self._problem.m else self._a[rows][:, steps]
        return self._single(stored, self._row_scale[rows, None])

    def _steps_of_b(self, steps: Any, columns: HostArray) -> HostArray:
        """Likewise."""
        block = self._b[steps] if len(columns) == self._problem.n else self._b[steps][:, columns]
        return self._single(block, self._column_scale[columns])

    def _single(self, stored: HostArray, scale: HostArray) -> HostArray:
        numbers = stored if stored.dtype == np.float32 else decode(stored, self._dtype)
        return np.asarray(numbers if self._generated else numbers * scale, np.float32)

    def _drawn(self, length: int) -> HostArray:
        """So many of a length, first and last among them."""
        if length <= DRAWN:
            return np.arange(length)
        inner = self._rng.choice(np.arange(1, length - 1), DRAWN - 2, replace=False)
        return np.sort(np.concatenate([[0, length - 1], inner]))

    def _panel(self, rows: HostArray, columns: HostArray) -> _Panel:
        problem = self._problem
        product = np.zeros((len(rows), len(columns)))
        # Squares in single precision do for the suite's own operands; a user's may have any exponent.
        kind = np.float32 if self._generated else np.float64
        size = np.zeros(product.shape, kind)
        row_powers, powers = np.zeros(problem.k), np.zeros(problem.k)
        for steps in _parts(problem.k, _steps_each(len(rows), len(columns))):
            b = self._rows_of_b(steps, columns)
            b_squares = np.square(b, dtype=np.float64).astype(kind)
            powers[steps] = b_squares.sum(axis=1)
            for part in _parts(len(rows)):
                a = np.asarray(decode(self._a[rows[part], steps], self._dtype), np.float64)
                a *= self._row_scale[rows[part], None]
                product[part] += a @ b
                if self._dtype.is_float:
                    squares = np.square(a, out=a).astype(kind)
                    size[part] += squares @ b_squares
                    row_powers[steps] += squares.sum(axis=0)
        few = len(columns) <= DRAWN and len(rows) * problem.k <= _MOST_STEPPED  # all steps cost little there
        chosen = np.arange(problem.k) if self.is_whole or few else self._drawn(problem.k)
        return _Panel(rows, columns, product, np.sqrt(size, out=size), powers * row_powers, chosen)

    def _measured_partials(self) -> tuple[float, float]:
        """How large partial sums become over s, the largest and on average, on drawn elements."""
        problem = self._problem
        rows = self._rng.integers(0, problem.m, _ELEMENTS)
        columns = self._rng.integers(0, problem.n, _ELEMENTS)
        a = decode(self._a[rows], self._dtype) * self._row_scale[rows, None]
        b = decode(self._b[:, columns], self._dtype) * self._column_scale[columns]
        products = np.asarray(a * b.T, np.float64)
        size = np.sqrt(np.square(products).sum(axis=1, keepdims=True))
        products = products[size[:, 0] > 0] / size[size[:, 0] > 0]
        if not products.size:
            return 1.0, 0.0
        largest = average = 1.0
        for lanes in _LANES:
            if lanes > problem.k:
                break
            kept = products[:, : problem.k // lanes * lanes].reshape(len(products), -1, lanes)
            partial = np.abs(kept.cumsum(axis=1))
            largest = max(largest, float(partial.max()))
            average = max(average, float(partial.mean(axis=1).max()))
        return 1.25 * largest, 1.25 * average if largest > _WALK else 0.0

    # --- comparing with it ---

    @cached_property
    def is_blind(self) -> bool:
        """Whether zeros would be called right, though products are none."""
        zeros = np.zeros((self._problem.m, self._problem.n), self._problem.result.numpy)
        is_something = self._problem.alpha and any(panel.product.any() for panel in self._panels)
        return bool(is_something) and self.check(zeros, zeros).verdict == "ok"

    def check(self, c: HostArray, c0: HostArray, sums: str = "") -> Check:
        """Whether C is right. NaN fails.

        Args:
            c: m x n, C after.
            c0: m x n, C before; not read if beta is 0.
            sums: the data type that sums are kept in, if it is not C's.
        """
        findings = _Findings()
        for panel in self._panels:
            self._compare(panel, c, c0, sums, findings)
        if self._panels and not self.is_whole and not findings.reasons:
            add = self._residual if self._problem.result.is_float else self._whole_residual
            add(c, c0, self.model(sums), findings)
        reasons = tuple(findings.reasons[:_REASONS])
        return Check("wrong" if reasons else "ok", findings.figures, reasons)

    def model(self, sums: str) -> Model:
        """What rounding does to sums that are kept in a data type; "" for C's."""
        result = self._problem.result
        kept = DTYPES[sums] if sums else result
        smallest = 0.0
        if kept.is_float:
            info, stored = _limits(kept), _limits(result)
            # Half has subnormal numbers on every device; of the others they may be flushed to zero.
            smallest = float(info.smallest_subnormal if kept.itemsize == 2 else info.smallest_normal)
            smallest += float(stored.smallest_subnormal)
        steps = self._problem.k + 4
        adding, storing = kept.eps / 2, result.eps / 2
        cut = _cut(kept, steps)
        return Model(adding, storing, self._dtype.dropped, steps * smallest, steps, cut, *self._partials)

    def _compare(self, panel: _Panel, c: HostArray, c0: HostArray, sums: str, findings: _Findings) -> None:
        problem, model = self._problem, self.model(sums)
        inexact = problem.result.is_float
        columns = len(panel.columns)
        none = np.zeros(columns)
        whole = np.empty((len(panel.rows), columns), np.float32)
        total = _Sums(whole, none, none.copy(), none.copy())
        worst, wrong, first = 0.0, 0, ""
        row_mean = 0.0, 0
        # So many rows at a time that what is kept of them stays in the caches.
        for part in _parts(len(panel.rows), max(1, min(_BLOCK, _CACHED // max(1, columns)))):
            rows = panel.rows[part]
            scale = np.multiply.outer(self._row_scale[rows], self._column_scale[panel.columns])
            got = self._elements(c, rows, panel.columns)
            product = problem.alpha * panel.product[part]
            added = np.zeros_like(product)
            if problem.beta != 0:
                added = problem.beta * scale * self._elements(c0, rows, panel.columns)
            with np.errstate(all="ignore"):
                residual = got * scale - (product + added)
                if inexact:
                    bound = model.bound(abs(problem.alpha) * panel.size[part], product, added)
                    bound += model.smallest * scale
                else:
                    bound = np.full(product.shape, _HALF_A_UNIT)
                ratio = np.abs(residual) / (bound + np.finfo(np.float64).tiny)
            failed = ~(ratio <= 1)
            if failed.any():
                i, j = np.argwhere(failed)[0]
                expected = (product + added)[i, j] / scale[i, j]
                where = f"C[{rows[i]}][{panel.columns[j]}]"
                first = first or f"{where} is {got[i, j]:.6g}, not {expected:.6g}"
                wrong += int(failed.sum())
            worst = max(worst, float(np.where(np.isnan(ratio), np.inf, ratio).max()))
            if inexact and np.isfinite(worst):
                # The scales of A and B, powers of 2; a user's may be too large to be multiplied here.
                total.residual[part] = residual * scale if self._generated else residual
                row_mean = max(row_mean, self._add(total, model, rows, residual, product, bound))
        share = f"{wrong} of {panel.product.size} elements are further off than rounding"
        size = f", {_times(worst)} its bound" if np.isfinite(worst) else ""
        findings.add("element", worst, f"{share}: {first}{size}")
        if inexact and np.isfinite(worst):
            self._add_up(panel, total, model, row_mean, findings)

    def _elements(self, c: HostArray, rows: HostArray, columns: HostArray) -> HostArray:
        whole = len(columns) == self._problem.n
        block = c[rows[0] : rows[-1] + 1] if whole and len(rows) == rows[-1] - rows[0] + 1 else c[rows]
        return np.asarray(decode(block if whole else block[:, columns], self._problem.result), np.float64)

    def _add(
        self,
        total: _Sums,
        model: Model,
        rows: HostArray,
        residual: HostArray,
        product: HostArray,
        bound: HostArray,
    ) -> tuple[float, int]:
        """Add a block of rows up; the worst row's mean residual over its bound, and that row."""
        squares = np.square(bound)
        total.rp += float(np.vdot(residual, product))
        total.pp += float(np.vdot(product, product))
        total.ppbb += float(np.vdot(np.square(product), squares))
        total.bb += float(squares.sum())
        total.most = max(total.most, float(bound.max()))
        total.columns += residual.sum(axis=0)
        if self._generated:
            total.column_products += product.sum(axis=0)
            total.column_bounds += squares.sum(axis=0)
            allowed = np.sqrt(squares.sum(axis=1)) + model.share * np.abs(product.sum(axis=1))
        else:
            total.column_bounds += bound.sum(axis=0)
            allowed = bound.sum(axis=1)
        ratio = _over(residual.sum(axis=1), allowed)
        index = int(ratio.argmax())
        return float(ratio[index]), int(rows[index])

    def _add_up(
        self, panel: _Panel, total: _Sums, model: Model, row_mean: tuple[float, int], findings: _Findings
    ) -> None:
        alpha = abs(self._problem.alpha)
        if total.pp > 0:
            noise = np.sqrt(total.ppbb) / total.pp + model.scaled
            allowed = noise if self._generated else np.sqrt(total.bb / total.pp)
            slope = total.rp / total.pp
            ratio = abs(slope) / allowed
            reason = f"C is {1 + slope:.4f} times what it should be, {_times(ratio)} the bound"
            findings.add("slope", ratio, reason)
            step, index = self._worst_step(panel, total, model, alpha)
            where = f"step {index} of k is missing or counted wrongly"
            findings.add("step", step, f"{where}, {_times(step)} the bound")
        ratio, row = row_mean
        findings.add("row_mean", ratio, f"the mean residual of row {row} is {_times(ratio)} its bound")
        allowed = total.column_bounds
        if self._generated:
            allowed = np.sqrt(allowed) + model.share * np.abs(total.column_products)
        ratios = _over(total.columns, allowed)
        index, ratio = panel.columns[int(ratios.argmax())], float(ratios.max())
        reason = f"the mean residual of column {index} is {_times(ratio)} its bound"
        findings.add("column_mean", ratio, reason)

    def _worst_step(self, panel: _Panel, total: _Sums, model: Model, alpha: float) -> tuple[float, int]:
        """The share of each step in the residual over its bound: the worst, and which.

        That of step p is the sum of a_ip r_ij b_pj over all i and j: over the longer of the two first.
        """
        shares = np.zeros(len(panel.steps))
        residual, every = total.residual, len(panel.steps) == self._problem.k
        for part in _parts(len(shares), _steps_each(*residual.shape)):
            steps = part if every else panel.steps[part]
            a, b = self._columns_of_a(panel.rows, steps), self._steps_of_b(steps, panel.columns)
            if len(residual) > residual.shape[1]:
                shares[part] = np.einsum("pj,pj->p", a.T @ residual, b)
            else:
                shares[part] = np.einsum("ip,ip->p", residual @ b.T, a)
        powers = panel.powers[panel.steps]
        root = np.sqrt(total.bb)
        with np.errstate(all="ignore"):
            norm = alpha * np.sqrt(powers)  # of alpha a_p b_p^T
            if self._generated:
                # A product may lose what it is smaller than half a unit of the partial sum, 3 s at most.
                lost = 3 * model.adding / model.unit * root / norm
                allowed = total.most / norm + lost + model.share
            else:
                allowed = root / norm
            ratios = np.abs(shares) * alpha / norm**2 / allowed
        ratios = np.where(powers > 0, ratios, 0.0)
        index = int(ratios.argmax())
        return float(ratios[index]), int(panel.steps[index])

    @cached_property
    def _blocks(self) -> tuple[HostArray, HostArray, HostArray]:
        """A random t, and by row and block of columns A (B t) and (A.^2 B.^2) t.^2, scaled."""
        problem = self._problem
        t = self._rng.uniform(0.5, 1.0, problem.n) * self._rng.choice((-1.0, 1.0), problem.n)
        every, count = np.arange(problem.n), ceil_div(problem.n, _WIDTH)
        bt, weight = np.zeros((problem.k, count)), np.zeros((problem.k, count))
        for part in _parts(problem.k):
            block = self._rows_of_b(part, every) * t
            bt[part], weight[part] = _across(block), _across(np.square(block))
        expected, squares = np.zeros((problem.m, count)), np.zeros((problem.m, count))
        for part in _parts(problem.m):
            scaled = decode(self._a[part], self._dtype) * self._row_scale[part, None]
            a = np.asarray(scaled, np.float64)
            expected[part], squares[part] = a @ bt, np.square(a) @ weight
        return t, expected, squares

    def _residual(self, c: HostArray, c0: HostArray, model: Model, findings: _Findings) -> None:
        """C t against alpha A (B t) + beta C0 t for a random t, each block of 64 columns for itself."""
        problem = self._problem
        t, products, squared = self._blocks
        worst, where = 0.0, ""
        for part in _parts(problem.m):
            scale = self._row_scale[part, None] * self._column_scale * t
            expected, squares = problem.alpha * products[part], problem.alpha**2 * squared[part]
            if problem.beta != 0:
                added = problem.beta * scale * np.asarray(decode(c0[part], problem.result), np.float64)
                expected += _across(added)
                squares += _across(np.square(added))
            if self._generated:
                bound = model.unit * np.sqrt(squares) + model.share * np.abs(expected)
            else:
                average = model.average or model.largest / 2
                each = model.unit * model.largest + model.biased * average
                bound = each * np.sqrt(_WIDTH * squares)
            bound += model.smallest * _across(np.abs(scale))
            with np.errstate(all="ignore"):
                got = _across(scale * np.asarray(decode(c[part], problem.result), np.float64))
                ratio = _over(got - expected, bound)
            ratio = np.where(np.isnan(ratio), np.inf, ratio)
            i, j = np.unravel_index(int(ratio.argmax()), ratio.shape)
            if ratio[i, j] > worst:
                columns = f"columns {j * _WIDTH} to {min((j + 1) * _WIDTH, problem.n) - 1}"
                worst, where = float(ratio[i, j]), f"row {part.start + i} in {columns}"
        findings.add("residual", worst, f"the residual of {where} is {_times(worst)} its bound")

    def _whole_residual(self, c: HostArray, c0: HostArray, _: Model, findings: _Findings) -> None:
        """Of integers, both sides in 64 bits, with a t whose elements are 21 bits long.

        What overflows does so on both sides alike. A wrong row passes with a probability of one in two
        million.
        """
        problem = self._problem
        t = self._rng.integers(-(2**20), 2**20, problem.n)
        alpha, beta = int(problem.alpha), int(problem.beta)
        difference = _apply_whole(c, t) - alpha * _apply_whole(self._a, _apply_whole(self._b, t))
        if beta != 0:
            difference -= beta * _apply_whole(c0, t)
        wrong = np.flatnonzero(difference)
        row = int(wrong[0]) if wrong.size else 0
        ratio = abs(float(difference[row])) / _HALF_A_UNIT
        findings.add("residual", ratio, f"the residual of row {row} is {ratio / 2:.6g}, not 0")


_DRAWN_PROBLEMS = 4  # of a batch whose every figure is looked at, first and last among them
_LARGEST_T = 8  # of whole numbers, so that sums of their products are exact in double precision
_AT_ONCE = 1 << 20  # elements of a batch's matrices in double precision


class BatchReference:
    """alpha A_i B_i of the problems of a batch, made once.

    Drawn problems are compared as `Reference` does, the first and the last always. All of them are compared
    element by element, where the host can make the products within a row's budget; else by the residual
    C_i t - alpha A_i (B_i t) - beta C0_i t of every row of every problem, for a random t.

    Args:
        problem: the problem, a batch.
        a: m x k of every problem, one below the other, as stored.
        b: k x n, likewise.
        generated: whether the operands are the suite's own random ones.
        budget_s: of the row.
        rng: draws problems, rows and t.
    """

    def __init__(
        self,
        problem: Gemm,
        a: HostArray,
        b: HostArray,
        generated: bool,
        budget_s: float,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._problem, self._generated = problem, generated
        self._rng = rng or np.random.default_rng()
        self._dtype = DTYPES[problem.dtype]
        self._a, self._b = stack(a, problem.batch), stack(b, problem.batch)
        inner = self._rng.integers(0, problem.batch, _DRAWN_PROBLEMS - 2).tolist()
        drawn = sorted({0, problem.batch - 1, *inner})
        single, share_s = replace(problem, batch=1), budget_s / len(drawn)
        self._references = {
            number: Reference(single, self._a[number], self._b[number], generated, share_s, self._rng)
            for number in drawn
        }
        whole_s = 3 * problem.flops / host_rate() if problem.flops > 1 << 24 else 0.0
        elements = problem.batch * problem.m * problem.n
        self.is_whole = elements <= _MOST_ELEMENTS and whole_s <= _SHARE * budget_s
        t = self._rng.uniform(0.5, 1.0, problem.n) * self._rng.choice((-1.0, 1.0), problem.n)
        self._t = t if self._dtype.is_float else np.rint(_LARGEST_T * t)
        each = max(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n, 1)
        self._parts = list(_parts(problem.batch, max(1, _AT_ONCE // each)))
        self._products = [self._product(part) for part in self._parts] if elements else []

    def _product(self, part: slice) -> tuple[HostArray, HostArray]:
        """A B of some problems and sqrt(A.^2 B.^2); where not all of C is compared, applied to t."""
        a = np.asarray(decode(self._a[part], self._dtype), np.float64)
        b = np.asarray(decode(self._b[part], self._dtype), np.float64)
        if not self.is_whole:
            squares = np.square(a) @ (np.square(b) @ np.square(self._t)[:, None])
            return a @ (b @ self._t[:, None]), np.sqrt(squares)
        product = a @ b
        kind = np.float32 if self._generated else np.float64
        squares = np.square(a, out=a).astype(kind) @ np.square(b, out=b).astype(kind)
        return product, np.sqrt(squares)

    @property
    def is_blind(self) -> bool:
        """See `Reference`."""
        return any(reference.is_blind for reference in self._references.values())

    def check(self, c: HostArray, c0: HostArray, sums: str = "") -> Check:
        """Whether C of every problem is right; arguments as of `Reference.check`, one below the other."""
        batch = self._problem.batch
        now, before = stack(c, batch), stack(c0, batch)
        checks = []
        for number, reference in self._references.items():
            check = reference.check(now[number], before[number], sums)
            reasons = tuple(f"in problem {number} of {batch}: {reason}" for reason in check.reasons)
            checks.append(replace(check, reasons=reasons))
        checks.append(self._every_problem(now, before, sums))
        check = merged(checks)
        return replace(check, reasons=check.reasons[:_REASONS])

    def _every_problem(self, c: HostArray, c0: HostArray, sums: str) -> Check:
        """All problems: every element, or the residual of every row."""
        problem, result, findings = self._problem, self._problem.result, _Findings()
        models = (reference.model(sums) for reference in self._references.values())
        model = max(models, key=lambda each: each.largest)
        width = 1.0 if self._generated or self.is_whole else math.sqrt(problem.n)
        for part, (product, size) in zip(self._parts, self._products, strict=False):
            got = np.asarray(decode(c[part], result), np.float64)
            added = moved = np.zeros_like(product)
            if problem.beta != 0:
                old = problem.beta * np.asarray(decode(c0[part], result), np.float64)
                added = moved = old
                if not self.is_whole:
                    added = old @ self._t[:, None]
                    moved = np.sqrt(np.square(old) @ np.square(self._t)[:, None])
            with np.errstate(all="ignore"):
                got = got if self.is_whole else got @ self._t[:, None]
                expected = problem.alpha * product
                bound = np.full(product.shape, _HALF_A_UNIT)
                if result.is_float:
                    bound = model.bound(width * abs(problem.alpha) * size, expected, moved) + model.smallest
                ratio = np.abs(got - (expected + added)) / (bound + np.finfo(np.float64).tiny)
            ratio = np.where(np.isnan(ratio), np.inf, ratio)
            worst, wrong = float(ratio.max()), sorted({*np.nonzero(~(ratio <= 1))[0].tolist()})
            name, reason = ("element" if self.is_whole else "residual"), ""
            if wrong:
                number = part.start + wrong[0]
                row, column = np.argwhere(~(ratio[wrong[0]] <= 1))[0]
                where = f"C[{row}][{column}]" if self.is_whole else f"the residual of row {row}"
                reason = f"problem {number} of {problem.batch} is wrong: {where} is {_times(worst)} its bound"
            findings.add(name, worst, reason)
        return Check("wrong" if findings.reasons else "ok", findings.figures, tuple(findings.reasons))


def _apply_whole(matrix: HostArray, vector: HostArray) -> HostArray:
    """matrix times vector in 64-bit integers."""
    parts = [matrix[part].astype(np.int64) @ vector for part in _parts(len(matrix))]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _limits(dtype: DType) -> Any:
    """numpy's facts of a floating-point type, or of float, whose exponents bfloat16 has."""
    kind: Any = dtype.numpy if dtype.numpy.kind == "f" else np.float32
    return np.finfo(kind)


def _cut(kept: DType, steps: int) -> float:
    """The share of a sum that is gone where matrix units keep fewer digits of it than a float has; or 0.

    Every product is cut off at the last digit of the partial sum, which is sqrt(k) times as large; what is
    left are whole such digits, so that the sum itself loses none but where it grows.
    """
    return kept.dropped * math.sqrt(steps)


def _parts(length: int, size: int = _BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _steps_each(rows: int, columns: int) -> int:
    """How many steps of a product are added to it together: what is read of B for it stays in the caches.

    They are more where the product itself is larger than that.
    """
    shorter, longer = sorted((rows, columns))
    return max(1, min(4 * _BLOCK, max(_CACHED // max(1, longer), 4 * shorter)))


def _across(block: HostArray) -> HostArray:
    """Sums over blocks of columns."""
    return np.asarray(np.add.reduceat(block, np.arange(0, block.shape[1], _WIDTH), axis=1))


def _over(values: HostArray, bounds: HostArray) -> HostArray:
    return np.asarray(np.abs(values) / (bounds + np.finfo(np.float64).tiny))


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"


@lru_cache(maxsize=1)
def host_rate() -> float:
    """Flop/s of numpy in double precision: the best of three products of 384 x 384."""
    edge = 384
    values = np.random.default_rng(1).random((edge, edge))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        values @ values
        seconds.append(time.perf_counter() - begin)
    return 2 * edge**3 / min(seconds)


def merged(checks: Sequence[Check]) -> Check:
    """Several checks of one kernel: the worst of each figure, and every reason once."""
    figures: dict[str, float] = {}
    for check in checks:
        for name, value in check.figures.items():
            figures[name] = max(figures.get(name, 0.0), value)
    reasons = tuple(dict.fromkeys(reason for check in checks for reason in check.reasons))
    return Check("wrong" if reasons else "ok", figures, reasons)
