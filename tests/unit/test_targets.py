"""Drivers that do not know the CPU that they compile for."""

import pytest

from gemmbench.opencl import drivers

WHEEL = "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, RELOC, LLVM 14.0.6, SLEEF, DISTRO, POCL_DEBUG"


@pytest.mark.parametrize(
    "device_version",
    [
        "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512",
        "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-znver4",
        "OpenCL 3.0 PoCL HSTR: pthread-x86_64-apple-darwin21.6.0-skylake",
        "OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic",  # every one has the same vectors
        "OpenCL 3.1 (Build 0)",
        "",
    ],
)
def test_no_warning(device_version: str) -> None:
    assert drivers.target_warning(WHEEL, device_version) == ""


@pytest.mark.parametrize("target", ["x86-64", "generic", "GENERIC"])
def test_one_sentence_with_what_to_install(target: str) -> None:
    version = f"OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-{target}"
    warning = drivers.target_warning(WHEEL, version)
    assert warning.startswith(f"PoCL 3.0-rc2 compiles for {target} processors (its LLVM 14.0.6 does not know")
    assert "install" in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    ("flags", "bits"),
    [("fpu sse sse2 avx avx2 avx512f avx512bw", 512), ("fpu sse avx avx2", 256), ("fpu sse sse2", 128)],
)
def test_what_the_cpu_offers(flags: str, bits: int) -> None:
    text = f"processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: {flags}\nbugs\t: x\n"
    assert drivers.vector_bits(text) == bits
    assert drivers.vector_bits("processor\t: 0\nFeatures\t: fp asimd sve\n") == 0
