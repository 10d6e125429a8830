"""docs/drivers.md from docs/drivers.json: what every driver makes of every kernel, type and probe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.model.dtypes import GEMM_DTYPES

BAD = ("wrong", "crashes", "hangs", "fails")


@dataclass(frozen=True)
class Fault:
    """A driver's fault: the rows that it explains, and what is known of it."""

    title: str
    driver: str  # regular expressions: of the key of docs/drivers.json,
    cases: str  # of "gemm naive float: crashes" or "probe flops float 1: wrong"
    text: str


FAULTS = (
    Fault(
        "llvmpipe ends loops after 65,535 turns of all loops of a work-item together",
        r"rusticl|Clover",
        r"^(probe .*|gemm cpu-packed .*): wrong$",
        """Mesa's software device gives up on loops that go on for longer, and says nothing. It counts
the turns of all loops that a work-item runs, one after the other or one within the other. This kernel, run by
a single work-item with n = 40,000, stores 40,000 and 25,534:

   ```c
   __kernel void trips(int n, __global const uint *in, __global uint *out)  // in: sixteen ones
   {
       uint first = 0, second = 0;
       for (int i = 0; i < n; i++)
           first += in[i & 15];
       for (int i = 0; i < n; i++)
           second += in[i & 15];
       out[0] = first;
       out[1] = second;
   }
   ```

   Probes that walk through hundreds of megabytes with few work-items are cut short, and called `wrong`, since
   their results are checked. So was `cpu-packed` at 127 and 128, whose work-items have whole rows of tiles,
   before it met fault 6; any other kernel would be once k is long enough.
   There is no workaround that costs nothing on other drivers: every kernel would need more launches.
""",
    ),
    Fault(
        "Clover with LLVM 15 aborts on vload and vstore",
        r"Clover",
        r": crashes$",
        """The process ends by an assertion, `Attempting to get element type of opaque pointer`, when a
kernel that has one of them is launched:

   ```c
   __kernel void load(__global float *a)
   {
       float4 v = vload4(get_global_id(0), a);
       a[0] = v.x + v.w;
   }
   ```

   gemmbench runs a driver in a process of its own, so that the row is `crashed` and the others are measured.
   There is no workaround: reads by pointers to vectors would need aligned rows everywhere.

   Clover's language is OpenCL C 1.1, where the kernels' `static` functions do not compile. On such a device
   gemmbench asks for 1.1 and compiles with `-Dstatic= -Dinline=`. Clover shows llvmpipe only with `LP_CL=1`
   in the environment.
""",
    ),
    Fault(
        "OpenCL 1.1 has no images as the kernels use them",
        r"Clover",
        r" image.*: fails$",
        """Reading an image without a sampler, and making one from a description, came with 1.2. Those rows
are `failed` with the compiler's words, and nothing else depends on them.
""",
    ),
    Fault(
        "Clover does not link a program without kernels",
        r"Clover",
        r"^gemm thin .*: fails$",
        """`int f(int i) { return i; }` does not build: `No OpEntryPoint instruction was found`. `thin` has a
second file, which is empty where its kernel is not needed. Its first file would crash by fault 2.
""",
    ),
    Fault(
        "Oclgrind counts the local memory of other kernels",
        r"Oclgrind",
        r"^gemm thin .*: fails$",
        """A kernel is charged with the local memory of all kernels of the program whose names begin with its
own. Of these, `one` has 40,000 bytes by CL_KERNEL_LOCAL_MEM_SIZE, and a launch is refused with
`OUT_OF_RESOURCES`, since the device has 32,768:

   ```c
   __kernel void one(__global float *a) { __local float l[5000]; l[0] = a[0]; a[0] = l[0]; }
   __kernel void one_more(__global float *a) { __local float l[5000]; l[0] = a[0]; a[0] = l[0]; }
   ```

   So `thin` is refused where it and `thin_ragged` take more than that together. `make races` tries less.
""",
    ),
    Fault(
        "rusticl's compiler ends where code prefetches",
        r"rusticl",
        r"^gemm cpu-packed .*: crashes$",
        """Clang takes `__builtin_prefetch`; what follows does not know `llvm.prefetch`, and the process ends
with status 8:

   ```c
   __kernel void fetch(__global float *a) { __builtin_prefetch(a, 1, 3); a[0] = 1; }
   ```

   `cpu-packed` takes it where `__has_builtin` says that it is there. Its row is `crashed`.
""",
    ),
)

TEXT = """\
# OpenCL drivers

What each driver makes of gemmbench's kernels and probes. `make drivers` runs the exact tests (whole numbers,
compared with `==`; guard cells around every operand, rows longer than they need be, NaN where nothing may be
read) on every driver that it finds, each in a process that sees no other one. A crash or a hang costs one
case. `make drivers ARGS=--install` installs Debian's drivers first, without showing them to other programs.
Results are kept in `docs/drivers.json`, of drivers that are not at hand, too; this page is written from it.

A kernel is tried on {shapes} problems (squares of {squares}, edges around the tiles, empty dimensions), each
with {scalars} pairs of alpha and beta. An emulated driver gets {small} smaller ones in place of the edges,
Oclgrind no squares from {simulated} on, and neither runs probes: they are too slow. Presets are those that
gemmbench plans for the device; work-groups are made smaller where the driver takes no such as compiled.

{drivers}
`ok`: right. `-`: unsupported, for the reason below. A number: a fault, explained below. Blank: not tried.
`earlier`: of an earlier text of the kernel, which has changed since then; `make drivers ARGS=--new` tries
again what this machine can.

## Kernels

{kernels}
## Probes

Each at its smallest size, compute probes at vector widths 1 and 4, in every way that gemmbench would race.

{probes}
## What is unsupported, and why

{reasons}
## Known driver faults, and what gemmbench does

{faults}"""


def document(known: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    from tools import drivers

    columns = [key for key in known if known[key]["devices"]]
    kernels = []
    for dtype in GEMM_DTYPES:
        names = [name for name in LADDER if dtype in BY_NAME[name].dtypes]
        lines = [
            (f"`{name}`", [cell(key, known[key], [f"gemm {name} {dtype}"]) for key in columns])
            for name in names
        ]
        kernels.append(f"### {dtype}\n\n{table('kernel', columns, lines)}")
    probes: dict[str, dict[str, list[str]]] = {}
    for key in columns:
        for case in cases(known[key]):
            if case.startswith("probe "):
                name = " ".join(case.split()[1:3])
                probes.setdefault(name, {}).setdefault(key, []).append(case)
    lines = [
        (f"`{name}`", [cell(key, known[key], by_key.get(key, [])) for key in columns])
        for name, by_key in sorted(probes.items())
    ]
    faults = "\n".join(
        f"{number}. **{fault.title}.** {fault.text}\n" for number, fault in enumerate(FAULTS, 1)
    )
    return TEXT.format(
        shapes=len(drivers.SQUARES) + len(drivers.EDGES),
        squares=", ".join(map(str, drivers.SQUARES)),
        scalars=len(drivers.SCALARS),
        small=len(drivers.SMALL),
        simulated=drivers.SIMULATED,
        drivers=listed(known),
        kernels="\n".join(kernels),
        probes=table("probe", columns, lines),
        reasons=reasons(known),
        faults=faults or "None.\n",
    )


def cases(result: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Status and reason of each case of a driver's first device."""
    return {
        key.partition(" ")[2]: (row[0], row[1])
        for key, row in result["rows"].items()
        if key.startswith(f"{result['devices'][0]['index']} ")
    }


def fault_of(key: str, case: str, status: str) -> int:
    """The number of the fault that explains what became of a case of a driver; 0 if none does."""
    for number, fault in enumerate(FAULTS, 1):
        if re.search(fault.driver, key) and re.search(fault.cases, f"{case}: {status}"):
            return number
    return 0


def cell(key: str, result: Mapping[str, Any], names: Iterable[str]) -> str:
    """What a driver makes of a kernel, or of a probe at all its widths."""
    from tools.drivers import is_earlier

    rows = cases(result)
    marks = []
    for name in names:
        status = rows[name][0] if name in rows else ""
        if status in BAD:
            number = fault_of(key, name, status)
            marks.append(f"{status} ({number})" if number else f"**{status}**")
        else:
            marks.append({"ok": "ok", "": ""}.get(status, "-"))
        if marks[-1] not in ("", "-") and is_earlier(result, f"0 {name}"):
            marks[-1] += ", earlier"
    return ", ".join(dict.fromkeys(marks))


def table(first: str, columns: Iterable[str], lines: Iterable[tuple[str, list[str]]]) -> str:
    heads = [key.replace(", x86_64", "") for key in columns]
    rows = [[first, *heads], ["---"] * (len(heads) + 1), *([name, *cells] for name, cells in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def listed(known: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for key, result in known.items():
        devices = "; ".join(
            f"{device['device']} (groups to {device['work_group']})" for device in result["devices"]
        )
        shown = " ".join(f"`{name}={value}`" for name, value in result["environment"].items())
        how = ", ".join(filter(None, [result["origin"], shown, result["how"]]))
        rows.append((key, [devices or f"none: {result['trouble']}", how, result["date"]]))
    return table("driver", ["device", "how", "tried"], rows)


def reasons(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Reasons by driver, and the cases that each is of, those of many shortened."""
    text = ""
    for key, result in known.items():
        by_reason: dict[str, list[str]] = {}
        for case, (status, reason) in cases(result).items() if result["devices"] else ():
            if status == "unsupported" or status == "skipped":
                by_reason.setdefault(" ".join(reason.split())[:200], []).append(case)
        if by_reason:
            text += f"**{key}**\n\n"
            text += "".join(f"- {reason}: {shortened(named)}\n" for reason, named in by_reason.items())
            text += "\n"
    return text


def shortened(names: list[str]) -> str:
    """Kernels and probes with their types, each once: ``naive (half)``."""
    types: dict[str, list[str]] = {}
    for name in names:
        _, kernel, dtype, *_ = name.split()
        if dtype not in types.setdefault(kernel, []):
            types[kernel].append(dtype)
    by_types: dict[tuple[str, ...], list[str]] = {}
    for kernel, own in types.items():
        by_types.setdefault(tuple(own), []).append(f"`{kernel}`")
    return "; ".join(f"{', '.join(kernels)} ({', '.join(own)})" for own, kernels in by_types.items())


def unexplained(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Cases that went wrong on a driver and that no fault explains."""
    return [
        f"{key}: {case}: {status}: {reason}"
        for key, result in known.items()
        if result["devices"]
        for case, (status, reason) in cases(result).items()
        if status in BAD and not fault_of(key, case, status)
    ]
