"""Kept presets: served for the same device, driver, type and kernels; a bad folder costs a note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Constraint
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem
from gemmbench.suite.cached import Preset, TunedPresets, source
from tests import fake_runs as fake
from tests.in_process import plan_case

REGISTER = BY_NAME["register"]
PARAMETERS = {"BM": 32, "BN": 64, "BK": 8, "TM": 8, "TN": 4}
PRESET = Preset(
    "register",
    "float",
    source(REGISTER),
    PARAMETERS,
    (Problem(512, 512, 512),),
    1.234,
    "2026-11-21T04:30:00Z",
)


def kept(folder: Path, *presets: Preset, device: DeviceFacts = fake.CPU) -> TunedPresets:
    store = TunedPresets(folder)
    for preset in presets or (PRESET,):
        store.keep(device, preset)
    assert store.notes == []
    return TunedPresets(folder)


def test_a_kept_preset_is_found_and_says_where_it_is_from(tmp_path: Path) -> None:
    store = kept(tmp_path)
    found = store.find(fake.CPU, REGISTER, "float")
    assert found.parameters == PARAMETERS
    assert found.note == (
        "preset: tuned 2026-11-21, at 512x512x512, 1.23 times the shipped preset's rate, "
        f"saved in {store.path(fake.CPU)}; --no-tuned uses the shipped one"
    )


@pytest.mark.parametrize(
    "other", [{"driver": "2027.1"}, {"name": "another"}, {"pci": "0000:17:00.0"}, {"compute_units": 1}]
)
def test_another_device_or_driver_has_its_own(tmp_path: Path, other: dict[str, Any]) -> None:
    device = replace(fake.CPU, **other)
    assert kept(tmp_path).find(device, REGISTER, "float") is None


def test_another_type_variant_or_kernel_source_has_its_own(tmp_path: Path) -> None:
    store = kept(tmp_path)
    assert store.find(fake.CPU, REGISTER, "double") is None
    assert store.find(fake.CPU, BY_NAME["prefetch"], "float") is None
    assert store.find(fake.CPU, REGISTER.with_flags(["-cl-mad-enable"]), "float") is None
    old = replace(PRESET, source="0123456789abcdef")
    assert kept(tmp_path, old).find(fake.CPU, REGISTER, "float") is None


def test_parameters_that_a_variant_takes_no_more_are_not_served(tmp_path: Path) -> None:
    above = (Constraint(lambda p: p["BM"] > 64, "BM must be above 64"),)
    strict = replace(REGISTER, parameters=replace(REGISTER.parameters, constraints=above))
    assert kept(tmp_path).find(fake.CPU, strict, "float") is None
    gone = replace(PRESET, parameters={**PARAMETERS, "BX": 1})
    assert kept(tmp_path, gone).find(fake.CPU, REGISTER, "float") is None


def test_the_newest_wins_and_the_others_stay(tmp_path: Path) -> None:
    double = replace(PRESET, dtype="double")
    newer = replace(PRESET, parameters={**PARAMETERS, "BK": 32}, speedup=None)
    store = kept(tmp_path, PRESET, double, newer)
    found = store.find(fake.CPU, REGISTER, "float")
    assert found.parameters["BK"] == 32
    assert "times the shipped" not in found.note
    assert store.find(fake.CPU, REGISTER, "double")


def test_what_is_forgotten_is_gone_and_the_rest_is_not(tmp_path: Path) -> None:
    double = replace(PRESET, dtype="double")
    store = kept(tmp_path, PRESET, double)
    assert store.forget(fake.CPU, "tiled", ("float",)) == ()
    assert store.forget(fake.CPU, None, ("float",)) == (PRESET,)
    assert store.find(fake.CPU, REGISTER, "float") is None
    assert store.find(fake.CPU, REGISTER, "double")


def test_a_corrupt_file_costs_a_note_and_the_next_winner_mends_it(tmp_path: Path) -> None:
    store = kept(tmp_path)
    store.path(fake.CPU).write_text("{")
    assert store.find(fake.CPU, REGISTER, "float") is None
    (note,) = store.notes
    assert note.startswith("cannot read tuned presets, so the shipped ones are used: ")
    assert store.forget(fake.CPU, "register", ("float",)) == ()
    assert store.path(fake.CPU).read_text() == "{"
    assert store.keep(fake.CPU, PRESET)
    assert TunedPresets(tmp_path).find(fake.CPU, REGISTER, "float")
    assert len(store.notes) == 1


def test_a_folder_that_cannot_be_made_costs_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = TunedPresets(tmp_path / "file" / "tuned")
    assert not store.keep(fake.CPU, PRESET)
    assert store.notes[0].startswith("cannot save the tuned preset: ")


def test_the_plan_takes_it_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    find = kept(tmp_path).find

    def case(overrides: dict[str, int] | None = None, device: DeviceFacts = fake.CPU) -> Case:
        return plan_case(device, REGISTER, Gemm(64, 64, 64), overrides, tuned=find)

    tuned = case()
    assert tuned.parameters == PARAMETERS
    assert tuned.source == REGISTER.fingerprint("float", PARAMETERS)
    assert tuned.notes == tuned.row("ok").notes
    assert tuned.notes[0].startswith("preset: tuned")
    shipped = case({"TM": 4})  # one's own start from the shipped preset
    assert shipped.parameters == REGISTER.preset("cpu-intel", {"TM": 4})
    assert shipped.notes == ()
    assert case(device=fake.POCL).parameters == REGISTER.preset("cpu-pocl")
