"""`gemmbench doctor`, and the line that points to it: a made-up machine, and devices that a child lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gemmbench as gb
from gemmbench import api
from gemmbench.doctor.machine import ExaminedMachine
from tests.cli.conftest import Call
from tests.fake_patient import CORES, Patient


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    made = Patient(tmp_path / "root")
    made.write(f"sys/bus/pci/devices/{'0000:17:00.0'}/vendor", "0x1a03\n")  # the child lists no GPU

    def look_at(**values: Any) -> ExaminedMachine:
        chosen = [replace(device, compute_units=CORES) for device in values.pop("chosen", ())]
        return made.machine(**{"devices": (), "chosen": chosen, **values})

    monkeypatch.setattr(api, "make_patient", look_at)
    return made


def test_findings_are_no_failure(call: Call, patient: Patient) -> None:
    patient.write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
    result = call("doctor", "--device", "1")
    assert result.exit_code == 0
    assert "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo" in result.output
    assert result.output.startswith("WARN  ")
    assert "\nOK    " in result.output
    assert "OK    steal" in call("doctor", "--device", "1", "-v").output


def test_json_is_an_object(call: Call, patient: Patient) -> None:
    patient.other = 1.6
    result = call("doctor", "--json", "--device", "0")
    assert result.exit_code == 0
    assert [each["check"] for each in json.loads(result.stdout)["findings"]] == ["load"]


def test_a_machine_without_a_device_is_looked_at(
    call: Call, patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "")
    result = call("doctor")
    assert result.exit_code == 0
    assert "No OpenCL driver has a device, so nothing can be measured." in result.output


def test_a_driver_that_dies_is_said(call: Call, patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "exit")
    result = call("doctor")
    assert result.exit_code == 0
    assert "WARN  Listing the OpenCL devices failed" in result.output


def test_a_device_of_the_environment_that_no_driver_lists_is_reported(
    call: Call, patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.other = 1.6
    monkeypatch.setenv("GEMMBENCH_DEVICE", "h900")
    result = call("doctor")
    assert result.exit_code == 0
    assert "Other programs use" in result.output
    assert "WARN  GEMMBENCH_DEVICE: no device is 'h900'" in result.output
    assert call("doctor", "--device", "h901").exit_code == 2


def test_the_api_returns_the_findings(patient: Patient) -> None:
    patient.other = 1.6
    assert [finding.check for finding in gb.doctor(device="0")] == ["load"]
    with pytest.raises(gb.UsageError, match="no device is 'h900'"):
        gb.doctor(device="h900")
