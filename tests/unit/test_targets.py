"""Drivers that compile for less than the CPU offers."""

import pytest

from gemmbench.opencl import drivers
from gemmbench.opencl.drivers import AVX, AVX2, AVX512, SSE

WHEEL = "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF, DISTRO, POCL_DEBUG"
DEBIAN = "OpenCL 3.0 PoCL 3.1+debian  Linux, None+Asserts, RELOC, SPIR, LLVM 15.0.6, SLEEF, DISTRO"


def host(target: str) -> str:
    return f"OpenCL 3.0 PoCL HSTR: {target}"


@pytest.mark.parametrize(
    ("device_version", "offered"),
    [
        (host("pthread-x86_64-pc-linux-gnu-skylake-avx512"), AVX512),
        (host("pthread-x86_64-unknown-linux-gnu-icelake-server"), AVX512),
        (host("cpu-x86_64-pc-linux-gnu-znver4"), AVX512),
        (host("pthread-x86_64-pc-linux-gnu-haswell"), AVX2),
        (host("pthread-x86_64-apple-darwin21.6.0-skylake"), AVX2),
        (host("pthread-x86_64-pc-linux-gnu-sapphirerapids"), AVX2),  # a virtual machine masks AVX-512
        (host("pthread-x86_64-pc-linux-gnu-newlake"), AVX512),  # not known here: no false alarm
        (host("pthread-x86_64-pc-linux-gnu-x86-64"), None),
        (host("pthread-aarch64-unknown-linux-gnu-generic"), AVX512),
        ("OpenCL 3.1 (Build 0)", AVX512),
        ("", AVX512),
    ],
)
def test_no_warning(device_version: str, offered: "drivers.Level | None") -> None:
    assert drivers.target_warning(DEBIAN, device_version, offered) == ""


@pytest.mark.parametrize(
    ("target", "offered", "words"),
    [
        ("pthread-x86_64-unknown-linux-gnu-x86-64", AVX512, "x86-64 processors"),
        ("pthread-x86_64-unknown-linux-gnu-generic", AVX2, "SSE where this CPU offers AVX2"),
        ("pthread-x86_64-unknown-linux-gnu-GENERIC", AVX512, "SSE where this CPU offers AVX-512"),
        ("cpu-x86_64-pc-linux-gnu-haswell", AVX512, "AVX2 where this CPU offers AVX-512"),
        ("pthread-x86_64-pc-linux-gnu-sandybridge", AVX2, "AVX where this CPU offers AVX2"),
    ],
)
def test_one_sentence_with_what_to_install(target: str, offered: "drivers.Level", words: str) -> None:
    warning = drivers.target_warning(WHEEL, host(target), offered)
    assert warning.startswith("PoCL 3.0-rc2 compiles for ")
    assert "LLVM 14.0.6" in warning
    assert words in warning
    assert "install" in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse2 avx avx2 avx512f avx512bw", AVX512),
        ("fpu sse2 avx avx2", AVX2),
        ("fpu sse2 avx", AVX),
        ("fpu sse2", SSE),
    ],
)
def test_what_the_cpu_offers(flags: str, expected: "drivers.Level") -> None:
    text = f"processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: {flags}\nbugs\t: x\n"
    assert drivers.level_of_flags(text) == expected


def test_other_architectures_offer_nothing_known() -> None:
    assert drivers.level_of_flags("processor\t: 0\nFeatures\t: fp asimd sve\n") is None
