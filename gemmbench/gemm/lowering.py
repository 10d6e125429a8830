"""AlexNet end to end: its convolutions lowered by im2col, and the sum over its layers.

A convolution is its lowering and one product for each tower: Chellapilla, Puri and Simard, High Performance
Convolutional Neural Networks for Document Processing, 2006.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gemmbench.gemm.workloads import CONVOLUTIONS, DENSE, Convolution
from gemmbench.ladder import AUTO
from gemmbench.model import units
from gemmbench.model.case import Case, Plan, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates

NET = "alexnet"  # its set of shapes
IM2COL = "im2col"
FILE = "gemm/00_im2col.cl"
BITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""What stands for values of so many bytes: im2col copies them, and needs no arithmetic of their type."""

_BY_NAME = {layer.name: layer for layer in CONVOLUTIONS}


def options(layer: Convolution, dtype: str, device: DeviceFacts) -> tuple[str, ...]:
    """The -D list of the kernel for one tower of a layer."""
    values = {
        "CHANNELS": layer.channels // layer.groups, "EDGE": layer.edge, "SIZE": layer.size,
        "STRIDE": layer.stride, "PAD": layer.pad, "OUT": layer.out,
        "FY": rows_each(layer, device),
    }  # fmt: skip
    bits = BITS[DTYPES[dtype].itemsize]
    return (f"-DREAL_{bits}", *(f"-D{name}={value}" for name, value in values.items()))


def rows_each(layer: Convolution, device: DeviceFacts) -> int:
    """How many rows of a patch one work-item copies."""
    return layer.size if device.type == "cpu" else 1


def plan(devices: Sequence[DeviceFacts], gemms: Plan, dtype: str, batch: int) -> Plan:
    """The lowering of every convolution, for each device that multiplies the type."""
    able = {step.device for step in gemms if isinstance(step, Case) and step.dtype == dtype}
    return tuple(
        _step(index, device, layer, dtype, batch)
        for index, device in enumerate(devices)
        if index in able
        for layer in CONVOLUTIONS
    )


def _step(index: int, device: DeviceFacts, layer: Convolution, dtype: str, batch: int) -> Case | Skip:
    shape = layer.shape(batch)
    problem = Gemm(shape.m, shape.n, shape.k, dtype, label=shape.name)
    parameters: dict[str, int | float | str] = {"layer": layer.name, "batch": batch}
    source = fingerprint((FILE,), options(layer, dtype, device))
    case = Case("lowering", index, IM2COL, dtype, parameters, problem, source)
    wanted = shape.k * shape.n * DTYPES[dtype].itemsize
    if wanted > device.max_alloc_bytes:
        most = units.size(device.max_alloc_bytes)
        return Skip(case.row("skipped", f"needs {units.size(wanted)} in one piece, the device gives {most}"))
    return case


def rebuilt(row: Row, device: DeviceFacts) -> Case | Skip | None:
    """The step, for position 0, that would measure a saved row again; None if there is no such layer."""
    batch = row.parameters.get("batch", 0)
    layer = _BY_NAME.get(str(row.parameters.get("layer")))
    whole = isinstance(batch, int) and batch > 0
    if row.variant != IM2COL or layer is None or row.dtype not in DTYPES or not whole:
        return None
    return _step(0, device, layer, row.dtype, int(batch))


def layer_of(case: Case) -> tuple[Convolution, int]:
    """The convolution that a case lowers, and its images at once."""
    return _BY_NAME[str(case.parameters["layer"])], int(case.parameters["batch"])


def lowered(images: np.ndarray[Any, Any], layer: Convolution) -> np.ndarray[Any, Any]:
    """What im2col makes of one tower's images (batch x channels x edge x edge), by numpy.

    Returns:
        channels * size^2 rows, batch * pixels columns.
    """
    pad = (layer.pad, layer.pad)
    padded = np.pad(images, ((0, 0), (0, 0), pad, pad))
    patches = sliding_window_view(padded, (layer.size, layer.size), axis=(2, 3))
    strided = patches[:, :, :: layer.stride, :: layer.stride]
    rows: np.ndarray[Any, Any] = strided.transpose(1, 4, 5, 0, 2, 3)
    return rows.reshape(images.shape[1] * layer.size**2, -1)


# --- The net as its rows have it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """One layer of the net.

    Attributes:
        runs: how often it runs: once for each tower.
        product: the row of the fastest kernel on the device, in the device scope; None if there is none.
        lowering: likewise of im2col; None of a dense layer, or where it was not measured.
    """

    name: str
    runs: int
    is_convolution: bool
    product: Row | None
    lowering: Row | None

    @property
    def product_s(self) -> float | None:
        """Seconds of its products, every tower's."""
        rate = rates.median_rate(self.product, "device")
        return self.runs * rates.flops_of(self.product) / rate if self.product and rate else None

    @property
    def lowering_s(self) -> float:
        """Seconds of its lowering, every tower's; 0 where there is none."""
        times = rates.summary(self.lowering, "device") if self.lowering else None
        return self.runs * times.median if times else 0.0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that count."""
        return tuple(row for row in (self.lowering, self.product) if row)


@dataclass(frozen=True)
class Net:
    """AlexNet on one device, in one data type."""

    device: int
    dtype: str
    layers: tuple[Layer, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The layers without a product that was measured."""
        return tuple(layer.name for layer in self.layers if layer.product_s is None)

    @property
    def unlowered(self) -> tuple[str, ...]:
        """The convolutions whose lowering was not measured."""
        return tuple(layer.name for layer in self.layers if layer.is_convolution and not layer.lowering_s)

    @property
    def lowering_s(self) -> float:
        """Seconds of every lowering."""
        return sum(layer.lowering_s for layer in self.layers)

    @property
    def convolutions_s(self) -> float:
        """Seconds of the convolutions, lowering and products."""
        products = sum(layer.product_s or 0.0 for layer in self.layers if layer.is_convolution)
        return products + self.lowering_s

    @property
    def whole_s(self) -> float:
        """Seconds of every layer."""
        return self.lowering_s + sum(layer.product_s or 0.0 for layer in self.layers)

    @property
    def sentence(self) -> str:
        """The share of the convolutions in the time, or why it is not known."""
        if self.missing:
            return f"not summed: no figure of {', '.join(self.missing)}"
        whole = self.whole_s
        parts = [("lowering", self.lowering_s), ("products", self.convolutions_s - self.lowering_s)]
        split = ", ".join(f"{name} {units.percent(seconds / whole)}" for name, seconds in parts if seconds)
        lacks = f"; without the lowering of {', '.join(self.unlowered)}" if self.unlowered else ""
        return (
            f"convolutions take {units.percent(self.convolutions_s / whole)} of {units.seconds(whole)} "
            f"({split}){lacks}"
        )


@lru_cache(maxsize=16)
def nets(run: Run) -> tuple[Net, ...]:
    """The net on every device and in every data type whose run has all of its layers."""
    rows = [row for row in run.rows if row.problem and row.device != HOST]
    subjects = dict.fromkeys((row.device, row.dtype) for row in rows if row.kind == "gemm")
    made = []
    for device, dtype in subjects:
        own_rows = [row for row in rows if (row.device, row.dtype) == (device, dtype)]
        layers = [
            *(_layer(own_rows, layer.name, layer.groups, True) for layer in CONVOLUTIONS),
            *(_layer(own_rows, name, 1, False) for name, _, _ in DENSE),
        ]
        known = [layer for layer in layers if layer]
        if len(known) == len(layers):
            made.append(Net(device, dtype, tuple(known)))
    return tuple(made)


def _layer(rows: Iterable[Row], name: str, runs: int, is_convolution: bool) -> Layer | None:
    """A layer with the fastest of its rows; None if nobody asked for it."""
    own_rows = [row for row in rows if f"{NET} {name}" in row.label.split(" = ")]
    products = [row for row in own_rows if row.kind == "gemm"]
    if not products:
        return None
    rated = [
        (rate, row)
        for row in products
        if row.variant != AUTO and (rate := rates.median_rate(row, "device"))  # its figures are another's
    ]
    best = max(rated, key=lambda pair: pair[0], default=(0.0, None))[1]
    lowering = next((row for row in own_rows if row.kind == "lowering" and row.status == "ok"), None)
    return Layer(name, runs, is_convolution, best, lowering)


def derived(run: Run, row: Row) -> dict[str, float]:
    """What a row adds to the net: seconds, and its share of the time; nothing where it does not count."""
    return _parts(run).get(id(row), {})


@lru_cache(maxsize=16)
def _parts(run: Run) -> dict[int, dict[str, float]]:
    """What each row that counts adds to its net, by the row's identity: the run keeps it."""
    parts: dict[int, dict[str, float]] = {}
    for net in nets(run):
        for layer in net.layers if not net.missing else ():
            for row in layer.rows:
                seconds = layer.lowering_s if row.kind == "lowering" else layer.product_s or 0.0
                parts.setdefault(id(row), {"net_s": seconds, "net_share": seconds / net.whole_s})
    return parts
