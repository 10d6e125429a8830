"""The sums of Hopper's tensor cores, bit by bit, and the recording that proves the rule.

``python -m tools.tensor_sums FILE.npz`` runs one instruction of each kind on an H100 or H200, and saves
operands and results as bits. ``tests/unit/test_tensor_sums.py`` compares `tensor_sum` with a saved recording,
``tests/data/tensor-sums.npz``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_ZERO = -(1 << 20)  # the exponent of zero, below every other one


@dataclass(frozen=True)
class Format:
    """A floating-point format: one bit of sign, then the exponent, then the fraction."""

    stored: Any  # unsigned integer that holds a value
    exponent_bits: int
    fraction_bits: int
    dropped: int = 0  # low bits of the stored value that the multiplier ignores
    has_infinity: bool = True  # else the largest exponent has numbers, and one NaN

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    def parts(self, bits: Array) -> tuple[Array, Array, Array, Array]:
        """Signed significands, exponents of their first digits, and masks of infinities and NaNs.

        A value is significand x 2^(exponent - fraction_bits). Subnormal numbers have the exponent of the
        smallest normal one. Zeros have `_ZERO`.
        """
        raw = bits.astype(np.int64) >> self.dropped
        fraction = raw & (1 << self.fraction_bits) - 1
        top = (1 << self.exponent_bits) - 1
        biased = raw >> self.fraction_bits & top
        negative = raw >> self.fraction_bits + self.exponent_bits & 1 == 1
        significand = np.where(biased > 0, fraction + (1 << self.fraction_bits), fraction)
        exponent = np.where(significand == 0, _ZERO, np.maximum(biased, 1) - self.bias)
        full = biased == top
        if self.has_infinity:
            infinite, nan = full & (fraction == 0), full & (fraction != 0)
        else:
            infinite, nan = np.zeros_like(full), full & (fraction == (1 << self.fraction_bits) - 1)
        return np.where(negative, -significand, significand), exponent, infinite, nan


FORMATS: Mapping[str, Format] = {
    "f16": Format(np.uint16, 5, 10),
    "bf16": Format(np.uint16, 8, 7),
    "tf32": Format(np.uint32, 8, 10, dropped=13),
    "e4m3": Format(np.uint8, 4, 3, has_infinity=False),
    "e5m2": Format(np.uint8, 5, 2),
    "f32": Format(np.uint32, 8, 23),
}
_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


def tensor_sum(instruction: str, operands: str, result: str, a: Array, b: Array, c: Array) -> Array:
    """The bits of D = A B + C by one tensor-core instruction of Hopper's.

    `instruction` is ``mma`` or ``wgmma``, `operands` the format of A (m x k) and B (n x k, its columns), and
    `result` that of C and D (m x n): ``f32`` or ``f16``, or ``f64`` for ``f64`` operands. All are bits.
    """
    if operands == "f64":
        return _chain(a, b, c)
    if operands in ("e4m3", "e5m2") and instruction == "mma":
        low = np.arange(a.shape[1]) % 4 < 2  # bytes of the low halves of words
        total = np.zeros_like(c)
        for half in (low, ~low):
            total = _sum(operands, "f32", a[:, half], b[:, half], total)
        with np.errstate(all="ignore"):
            added = total.view(np.float32) + c.view(np.float32)
        return np.where(np.isnan(added), np.uint32(_NAN["f32"]), added.view(np.uint32))
    return _sum(operands, result, a, b, c)


def _chain(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-adds in the order of k, in double."""
    left, right, total = (bits.view(np.float64) for bits in (a, b, c.copy()))
    for i, j in np.ndindex(total.shape):
        for p in range(left.shape[1]):
            total[i, j] = float(Fraction(left[i, p]) * Fraction(right[j, p]) + Fraction(total[i, j]))
    return total.view(np.uint64)


def _sum(operands: str, result: str, a: Array, b: Array, c: Array) -> Array:
    """All products and C as the terms of one sum, which is cut off.

    The terms are aligned with the largest exponent. What is more than 25 digits below it (fp8: 13) is cut
    off. The sum of the rest is exact, and cut off to 24 digits (fp8: 14), or rounded to nearest in half.
    """
    kept = 13 if operands in ("e4m3", "e5m2") and a.shape[1] == 32 else 25
    form, total = FORMATS[operands], FORMATS[result]
    (x, x_at, x_inf, x_nan), (y, y_at, y_inf, y_nan) = form.parts(a[:, None]), form.parts(b[None])
    products, exponents = x * y, x_at + y_at
    infinite = x_inf | y_inf
    nan = x_nan | y_nan | (x_inf & (y == 0) & ~y_inf) | (y_inf & (x == 0) & ~x_inf)
    added, added_at, added_inf, added_nan = (each[..., None] for each in total.parts(c))
    top = np.maximum(exponents.max(-1, keepdims=True), added_at)
    last = top - kept  # the exponent of the last digit that counts
    terms = np.concatenate(
        [
            _cut(products, exponents - 2 * form.fraction_bits - last),
            _cut(added, added_at - total.fraction_bits - last),
        ],
        axis=-1,
    )
    digits = 14 if kept == 13 else 24
    exact, scale = terms.sum(-1), last[..., 0]
    bits = np.zeros(c.shape, total.stored)
    signs = np.concatenate([np.sign(products) * infinite, np.sign(added) * added_inf], axis=-1)
    is_nan = nan.any(-1) | added_nan[..., 0] | ((signs > 0).any(-1) & (signs < 0).any(-1))
    for at in np.ndindex(c.shape):
        if is_nan[at]:
            bits[at] = _NAN[result]
        elif signs[at].any():
            bits[at] = _packed(math.inf * signs[at][signs[at] != 0][0], total)
        elif exact[at]:
            bits[at] = _rounded(int(exact[at]), int(scale[at]), total, digits)
    return bits


def _cut(significands: Array, exponents: Array) -> Array:
    """Whole numbers: significands times 2^exponents, cut off towards zero."""
    left, right = np.clip(exponents, 0, 40), np.clip(-exponents, 0, 62)
    return np.asarray(np.sign(significands) * (np.abs(significands) << left >> right))


def _rounded(number: int, scale: int, form: Format, digits: int) -> Any:
    """The bits of number x 2^scale: cut off to so many digits in float, rounded to nearest even in half."""
    if form is FORMATS["f16"]:
        with np.errstate(over="ignore"):
            return np.float16(math.ldexp(number, scale)).view(np.uint16)
    least = 1 - form.bias - form.fraction_bits - scale  # of the last digit of a subnormal number
    drop = max(abs(number).bit_length() - digits, least, 0)
    value = (abs(number) >> drop) << drop
    try:
        return _packed(math.copysign(math.ldexp(value, scale), number), form)
    except OverflowError:
        return _packed(math.copysign(math.inf, number), form)


def _packed(value: float, form: Format) -> Any:
    kind = np.float16 if form is FORMATS["f16"] else np.float32
    with np.errstate(over="ignore"):
        return kind(value).view(form.stored)


# --- Recording ----------------------------------------------------------------------------------------------

_SHAPES = {"f16": "k16", "bf16": "k16", "tf32": "k8", "e4m3": "k32", "e5m2": "k32", "f64": "k8"}
CASES: tuple[tuple[str, str, str], ...] = (
    *(("mma", operands, "f32") for operands in ("f16", "bf16", "tf32", "e4m3", "e5m2")),
    ("mma", "f16", "f16"),
    ("mma", "f64", "f64"),
    *(("wgmma", operands, "f32") for operands in ("f16", "bf16", "tf32", "e4m3", "e5m2")),
    ("wgmma", "f16", "f16"),
)
_TILES = {"mma": 3, "wgmma": 1}  # of 128 and 512 sums
_ROWS = {"mma": 16, "wgmma": 64}
_COLUMNS = 8

_SOURCE = Path(__file__).with_suffix(".cl")


def _defines(instruction: str, operands: str, result: str) -> str:
    """The macros of `_SOURCE` for one case."""
    is_mma, shape = instruction == "mma", _SHAPES[operands]
    types = {"f64": ("double", "d"), "f32": ("float", "f"), "f16": ("uint", "r")}
    kind, letter = types[result]
    word, word_letter = types["f64"] if operands == "f64" else ("uint", "r")
    words = 2 if result == "f16" else 4
    name = f"mma.sync.aligned.m16n8{shape}.row.col.{result}.{operands}.{operands}.{result}"
    if not is_mma:
        name = f"wgmma.mma_async.sync.aligned.m64n8{shape}.{result}.{operands}.{operands}"
    flags = ", 1, 1, 0, 0" if operands in ("f16", "bf16") else ", 1, 1"
    place = "(row + 8 * ((w) / 2)) * 8 + 2 * column + (w) % 2"
    values: dict[str, object] = {
        "MMA": int(is_mma),
        "WORD": word,
        "WORD_KIND(x)": f'"{word_letter}"(x)',
        "SUM": kind,
        "KIND(x)": f'"{letter}"(x)',
        "WORDS": words,
        "PLACE(w)": f"({place})" if words == 4 else "((row + 8 * (w)) * 4 + column)",
        "INSTRUCTION": f'"{name}"',
        "FLAGS": f'"{flags}"',
        "LATER": '"//@sm_90a "',
    }
    return "".join(f"#define {macro} {value}\n" for macro, value in values.items())


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> Array:
    """Random bits of a format: a third of the rows close to 1, a third over a wide range, a third sparse."""
    if name == "f64":
        return np.asarray((rng.normal(size=shape) * 2.0 ** rng.integers(-9, 9, shape)).view(np.uint64))
    form = FORMATS[name]
    width = form.exponent_bits + form.fraction_bits + form.dropped + 1
    every = rng.integers(0, 1 << width, shape, np.uint64)
    which = np.arange(shape[0])[:, None] % 3
    reach = np.where(which == 1, min(form.bias - 1, 24), 3)
    exponents = form.bias + rng.integers(-reach, reach + 1, shape)
    low = form.fraction_bits + form.dropped
    others = ~np.uint64(((1 << form.exponent_bits) - 1) << low)
    near = (every & others) | (exponents.astype(np.uint64) << np.uint64(low))
    # One in 16 over the wide range is anything: subnormal, infinite, not a number.
    bits = np.where((which == 1) & (rng.random(shape) < 1 / 16), every, near)
    bits = np.where((which == 2) & (rng.random(shape) < 0.7), 0, bits)
    return np.asarray(bits.astype(form.stored))


def recorded(device: Any) -> dict[str, Array]:
    """Operands and results of every case on a device of pyopencl's, as bits, by case and name."""
    import pyopencl as cl

    from gemmbench.opencl.runtime import enable_marked

    context = cl.Context([device])
    queue, rng, arrays = cl.CommandQueue(context), np.random.default_rng(20261129), dict[str, Array]()
    for case in CASES:
        instruction, operands, result = case
        tiles, rows = _TILES[instruction], _ROWS[instruction]
        depth = int(_SHAPES[operands][1:])
        a, b = (drawn(rng, operands, (tiles * each, depth)) for each in (rows, _COLUMNS))
        c = drawn(rng, result, (tiles * rows, _COLUMNS))
        program = cl.Program(context, _defines(*case) + _SOURCE.read_text()).build(["-cl-std=CL1.2"])
        if instruction == "wgmma":
            (binary,) = program.get_info(cl.program_info.BINARIES)
            text = enable_marked(bytes(binary).decode("latin-1").rstrip("\0"), "sm_90a")
            program = cl.Program(context, [device], [text.encode()]).build()
        flags, d = cl.mem_flags, np.zeros_like(c)
        buffers = [
            cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=each) for each in (a, b, c, d)
        ]
        items = 2 * rows if instruction == "wgmma" else 32
        program.one(queue, (tiles * items,), (items,), *buffers)
        cl.enqueue_copy(queue, d, buffers[-1])
        arrays |= {f"{'-'.join(case)}/{name}": each for name, each in zip("abcd", (a, b, c, d), strict=True)}
    return arrays


def sums(arrays: Mapping[str, Array], case: tuple[str, str, str]) -> tuple[Array, Array]:
    """The results of a recorded case by `tensor_sum`, and those of the device."""
    a, b, c, d = (arrays[f"{'-'.join(case)}/{name}"] for name in "abcd")
    rows, tiles = _ROWS[case[0]], len(b) // _COLUMNS
    parts = ((slice(t * rows, (t + 1) * rows), slice(t * _COLUMNS, (t + 1) * _COLUMNS)) for t in range(tiles))
    return np.concatenate([tensor_sum(*case, a[i], b[j], c[i]) for i, j in parts]), d


def main(file: str) -> None:
    """Record every case on the first NVIDIA device and save it. Print how many sums `tensor_sum` gives."""
    import pyopencl as cl

    (platform,) = (each for each in cl.get_platforms() if "NVIDIA" in each.name)
    arrays = recorded(platform.get_devices()[0])
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # mypy takes arrays for allow_pickle
    for case in CASES:
        expected, got = sums(arrays, case)
        print(f"{'-'.join(case)}: {int((expected == got).sum())} of {got.size}")


if __name__ == "__main__":
    main(*sys.argv[1:])
