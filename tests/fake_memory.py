"""Memory, transfer and latency rows that never ran, like an H200's: for golden tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gemmbench.model.row import Check, Kind, Parameters, Row, Work
from gemmbench.model.run_file import Run
from tests import fake_runs as fake

DEVICE = replace(fake.GPU, compute_capability=(9, 0), cache_bytes=4325376)
GLOBAL = {  # GB/s by vector width
    "global-read": (4490, 4510, 4530, 4550, 4510),
    "global-write": (3720, 4600, 4650, 1800, 1470),
    "global-copy": (3750, 3970, 4160, 3330, 2260),
    "global-triad": (4030, 4370, 4360, 3950, 2980),
    "local-read": (32600, 33200, 33200, 16700, 8300),
}
STAIRS = (*[33000] * 6, 31200, 14000, 7100, 6100, 5900, 5800, 5700, 5500, 4900, 4600)
CHASE = (20, 20, 20, 20, 20.3, 20.3, 84, 143, 143, 143, 143, 143, 143, 239, 343, 347)  # ns
TRANSFERS = {  # GB/s from 1 KiB on, by powers of four
    "upload-pageable": (0.13, 0.49, 1.6, 3.9, 10.3, 14.4, 17, 17.3, 17.6, 10.7),
    "download-pageable": (0.11, 0.43, 1.6, 4.3, 8.8, 11.7, 15.7, 17.8, 18.4, 19.1),
    "upload-pinned": (0.13, 0.48, 1.6, 6.2, 18.8, 36.9, 49.3, 53.8, 55.1, 55.5),
    "download-pinned": (0.13, 0.49, 1.9, 7.0, 20.4, 38, 49.7, 53.8, 55, 55.4),
}
LAUNCHES = {
    "launch-dispatch": 4.4e-6,
    "launch-start": 6.7e-6,
    "launch-round-trip": 9.6e-6,
    "launch-chain": 4.3e-6,
}
_BYTES = 1 << 32


def row(
    kind: Kind,
    variant: str,
    parameters: Parameters,
    seconds: float,
    moved: int = 0,
    choice: Parameters | None = None,
    notes: Sequence[str] = (),
    spread: float = 0.002,
) -> Row:
    """An ok row."""
    clock = "kernel" if kind == "bandwidth" or variant == "pointer-chase" else "host"
    dtype = "int" if kind == "latency" else "float"
    made = fake.probe_row(
        kind, variant, parameters, seconds, Work(bytes=moved), dtype, 0, clock, choice, spread=spread
    )
    return replace(made, notes=tuple(notes))


def _bandwidth() -> list[Row]:
    rows = []
    for variant, rates in GLOBAL.items():
        for width, rate in zip((1, 2, 4, 8, 16), rates, strict=True):
            choice: Parameters = {"pattern": "grid", "unroll": 4, "group": 256, "items": 270336}
            if variant == "local-read":
                del choice["pattern"]
            notes = ("working set 4.00 GiB, 16 times a last-level cache of 256 MiB",)
            race = (f"tried (GB/s): unroll 4: {rate}",)
            made = row("bandwidth", variant, {"width": width}, _BYTES / rate / 1e9, _BYTES, choice, notes)
            rows.append(replace(made, race=race))
    reasons = ("doubling the work multiplies the time by 1.17, not by 2",)
    rows[15] = replace(rows[15], check=Check("suspect", {}, reasons))
    rows[13] = replace(rows[13], status="failed", reason="out of resources", samples={}, choice={})
    rows.append(
        Row("bandwidth", 0, "image-read", "float", {"width": 4}, "unsupported", "the device has no images")
    )
    return rows


def _sizes() -> list[Row]:
    rows = []
    for place, (rate, ns) in enumerate(zip(STAIRS, CHASE, strict=True)):
        size = 4096 << place
        rows.append(row("bandwidth", "working-set", {"bytes": size}, _BYTES / rate / 1e9, _BYTES))
        rows.append(row("latency", "pointer-chase", {"bytes": size}, ns * 1e-9))
    rows[26] = replace(
        rows[26], check=Check("suspect", {}, ("doubling the work multiplies the time by 2.31, not by 2",))
    )
    rows[29] = replace(
        rows[29], status="timed-out", reason="stopped after 120 s (--time-limit 120)", samples={}
    )
    return rows


def _transfers() -> list[Row]:
    sizes = [1024 << 2 * place for place in range(10)]
    rows = [
        row("transfer", name, {"bytes": size}, size / rate / 1e9, size, spread=0.03)
        for name, rates in TRANSFERS.items()
        for size, rate in zip(sizes, rates, strict=True)
    ]
    note = "zero-copy: the buffer is mapped where it is, and nothing is transferred"
    return rows + [
        row("transfer", name, {"bytes": size}, 7e-6, 0, {"way": "zero-copy"}, (note,))
        for name in ("upload-mapped", "download-mapped")
        for size in sizes
    ]


def _launches() -> list[Row]:
    return [row("latency", name, {}, seconds, spread=0.2) for name, seconds in LAUNCHES.items()]


def fake_memory() -> Run:
    """Every family on a GPU: some suspect, one failed, unsupported, timed out, maps that move nothing."""
    rows = [*_bandwidth(), *_sizes(), *_transfers(), *_launches()]
    return Run(fake.header(("gemmbench", "peak", "--all"), (DEVICE,)), tuple(rows), "memory.jsonl")


def fake_cpu() -> Run:
    """Bandwidth alone, on a CPU that emulates local memory and whose last-level cache is known."""
    device = replace(fake.CPU, last_level_cache_bytes=48 << 20)
    rows = tuple(row for row in fake_memory().rows if row.kind == "bandwidth")
    return Run(fake.header(("gemmbench", "peak", "--only", "memory"), (device,)), rows, "cpu.jsonl")


def fake_matrix() -> Run:
    """Arithmetic and matrix units on a GPU whose ceilings can be derived."""
    rows = [fake.peak_row(width, 65500.0 - 10 * width) for width in (1, 2, 4)]
    rows += [fake.peak_row(width, 33200.0, dtype="double") for width in (1, 2)]
    rows += [
        replace(
            fake.peak_row(1, rate, dtype=dtype, choice={"chains": 8, "unroll": 8, "groups": 12}),
            variant="mma",
            parameters={"shape": shape, "accumulator": into, "operands": operands},
        )
        for dtype, shape, into, random, zeros in (
            ("half", "m16n8k16", "float", 601000.0, 640000.0),
            ("char", "m16n8k32", "int", 1190000.0, 1263000.0),
        )
        for operands, rate in (("random", random), ("zeros", zeros))
    ]
    rows.append(
        Row("peak", 0, "dpas", "half", {"extension": "cl_x"}, "unsupported", "the device does not list cl_x")
    )
    return Run(fake.header(("gemmbench", "peak"), (DEVICE,)), tuple(rows), "matrix.jsonl")
