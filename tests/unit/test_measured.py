"""Kept measurements: served again while device, driver, kernels and BLAS are the same; a bad folder costs a note."""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench import ladder
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.row import Check, Problem, Row
from gemmbench.model.run_file import Header
from gemmbench.suite import cached
from gemmbench.suite.auto import Point
from gemmbench.suite.cached import KeptMeasurements
from tests import fake_runs as fake

PROBLEM = Problem(512, 512, 512)
TILED = fake.gemm_row("tiled", PROBLEM, 40.0, parameters={"TS": 16})
NUMPY = fake.gemm_row("numpy", PROBLEM, 200.0, device=-1)
HEADER = fake.header(("square",), (fake.CPU,))


def keep(folder: Path, *rows: Row, header: Header = HEADER) -> list[str]:
    """Keep rows; the notes."""
    store = KeptMeasurements(folder)
    store.keep(header, rows or (TILED, NUMPY))
    return store.notes


def points(folder: Path, device: DeviceFacts = fake.CPU, host: HostFacts = fake.HOST) -> tuple[Point, ...]:
    store = KeptMeasurements(folder)
    (found,) = store.points([device], host).values()
    assert store.notes == []
    return found


def names(*found: Point) -> list[str]:
    return [point.variant for point in found]


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    assert points(tmp_path) == ()
    assert keep(tmp_path) == []
    tiled, numpy = points(tmp_path)
    assert (tiled.variant, tiled.parameters, tiled.shape) == ("tiled", {"TS": 16}, "512x512x512")
    assert tiled.host_s == pytest.approx(TILED.samples["host"].seconds[0], rel=0.05)
    assert (numpy.variant, numpy.device_s) == ("numpy", None)


@pytest.mark.parametrize(
    "other", [{"driver": "2027.1"}, {"name": "another"}, {"pci": "0000:17:00.0"}, {"compute_units": 1}]
)
def test_another_device_or_driver_has_its_own(tmp_path: Path, other: dict[str, object]) -> None:
    keep(tmp_path)
    assert points(tmp_path, replace(fake.CPU, **other)) == ()  # type: ignore[arg-type]


def test_other_kernels_or_another_blas_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)
    assert names(*points(tmp_path, host=replace(fake.HOST, blas="OpenBLAS 1.0"))) == ["tiled"]
    assert names(*points(tmp_path, host=replace(fake.HOST, numpy="3.0"))) == ["tiled"]
    monkeypatch.setattr(cached, "_fingerprint", lambda *_: "other kernels")
    assert names(*points(tmp_path)) == ["numpy"]


def test_a_variant_or_a_parameter_that_is_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)
    gone = replace(ladder.BY_NAME["tiled"], parameters={})
    monkeypatch.setattr(cached, "BY_NAME", {**ladder.BY_NAME, "tiled": gone})
    assert names(*points(tmp_path)) == ["numpy"]
    monkeypatch.setattr(cached, "CHOOSABLE", ("numpy",))
    assert names(*points(tmp_path)) == ["numpy"]


def test_the_newest_stands_last_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(TILED, parameters={"TS": 32})
    keep(tmp_path, TILED, other, NUMPY)
    newer = fake.gemm_row("tiled", PROBLEM, 80.0, parameters={"TS": 16})
    keep(tmp_path, newer)
    found = points(tmp_path)
    assert [point.parameters for point in found] == [{"TS": 32}, {}, {"TS": 16}]
    assert found[-1].host_s < found[0].host_s * 0.6
    monkeypatch.setattr(cached, "_MOST", 2)
    keep(tmp_path, TILED)
    assert names(*points(tmp_path)) == ["numpy", "tiled"]


@pytest.mark.parametrize(
    "header",
    [
        replace(HEADER, host=replace(fake.HOST, busy=1.1)),
        replace(HEADER, policy=Policy(cold=True)),
        replace(HEADER, policy=Policy(memory="pageable")),
    ],
)
def test_what_others_cannot_be_held_against_is_not_kept(tmp_path: Path, header: Header) -> None:
    keep(tmp_path, header=header)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_verified_or_not_of_the_device_is_not_kept(tmp_path: Path) -> None:
    keep(tmp_path, replace(TILED, check=Check("wrong")), replace(TILED, status="failed"), NUMPY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"device": 1}', "\0\xff"])
def test_a_corrupt_file_costs_a_note(tmp_path: Path, text: str) -> None:
    keep(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(text.encode("latin-1"))
    store = KeptMeasurements(tmp_path)
    assert store.points([fake.CPU], fake.HOST) == {0: ()}
    (note,) = store.notes
    assert note.startswith(f"kept measurements cannot be read, so that auto goes without: {path}: ")
    keep(tmp_path)  # and the next run finds a good one
    assert names(*points(tmp_path)) == ["tiled", "numpy"]


def test_a_folder_that_cannot_be_made_costs_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (note,) = keep(tmp_path / "file" / "measured")
    assert note.startswith("measurements are not kept for auto: ")
