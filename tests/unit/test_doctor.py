"""`gemmbench doctor`: planted causes, a healthy machine, unreadable files, and rows that point to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gemmbench.doctor import Diagnosis, diagnosis_page, examine, to_record
from gemmbench.doctor import machine as reading
from gemmbench.doctor.checks import CHECKS
from gemmbench.doctor.machine import Finding, ranges
from gemmbench.measure.sensors import CounterError
from gemmbench.opencl import drivers
from tests.fake_patient import BOARD, CORES, CPU_DEVICE, FILES, GPU_DEVICE, POCL_DEVICE, SLOT, Patient
from tests.fake_proc import OTHER

ROOT = Path(__file__).parents[2]
CPU, CGROUP = "sys/devices/system/cpu", "sys/fs/cgroup/user.slice/session-1.scope"
HOST, INTEL, GPU, POCL = None, 0, 1, 2


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return Patient(tmp_path / "root")


def named(report: Diagnosis) -> list[tuple[str, int | None]]:
    return [(finding.check, finding.device) for finding in report.findings]


def only(patient: Patient) -> Finding:
    """The single finding."""
    report = examine(patient.machine())
    assert len(report.findings) == 1, named(report)
    return report.findings[0]


# --- the causes ---------------------------------------------------------------------------------------------


Plant = Callable[[Patient], None]


def all_of(*plants: Plant) -> Plant:
    def plant(patient: Patient) -> None:
        for each in plants:
            each(patient)

    return plant


def device(index: int, **values: Any) -> Plant:
    return lambda patient: patient.change(index, **values)


def board(**values: object) -> Plant:
    return lambda patient: patient.board.update(
        {f"nvmlDeviceGet{name}": each for name, each in values.items()}
    )


def file(path: str, text: str) -> Plant:
    return lambda patient: patient.write(path, text)


def cpufreq(**values: str) -> Plant:
    return lambda patient: patient.cpufreq(**values)


def variable(name: str, value: str) -> Plant:
    return lambda patient: patient.environ.update({name: value})


def blas(**values: object) -> Plant:
    return lambda patient: setattr(patient, "blas", {**(patient.blas or {}), **values})


def plant_no_driver(patient: Patient) -> None:
    patient.devices = patient.devices[:1]
    (patient.root / "etc/OpenCL/vendors/nvidia.icd").unlink()


def plant_siblings(patient: Patient) -> None:
    patient.write(f"{CPU}/smt/active", "1\n")
    for core in range(CORES):
        pair = sorted((core, (core + 4) % CORES))
        patient.write(f"{CPU}/cpu{core}/topology/thread_siblings_list", f"{pair[0]},{pair[1]}\n")


def plant_reference_blas(patient: Patient) -> None:
    path = "/usr/lib/libblas.so.3"
    patient.blas = {"internal_api": "reference BLAS", "version": "3.11.0", "filepath": path}


plant_governor = cpufreq(scaling_governor="powersave", scaling_driver="acpi-cpufreq")
plant_pinned = all_of(file("proc/self/status", "Cpus_allowed_list:\t0-3\n"), blas(num_threads=4))
plant_busy_board = board(
    UtilizationRates=SimpleNamespace(gpu=97), ComputeRunningProcesses=[SimpleNamespace(pid=4711)]
)
OLD_POCL = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu"
OLD_GROUPS = "4:cpu,cpuacct:/docker/abc\n1:memory:/docker/abc\n0::/\n"

# What is planted by the check that must name it, alone; tests/golden/doctor.txt has its words.
CAUSES: tuple[tuple[str, int | None, Plant], ...] = (
    ("driver-missing", HOST, plant_no_driver),
    ("driver-target", POCL, device(POCL, device_version=f"{OLD_POCL}-x86-64")),
    ("driver-target", INTEL, all_of(
        variable("CL_CONFIG_CPU_TARGET_ARCH", "corei7"), device(INTEL, vector_widths={"float": 4})
    )),
    ("driver-target", INTEL, device(INTEL, vector_widths={"float": 8})),
    ("governor", HOST, plant_governor),
    ("governor", HOST, cpufreq(scaling_governor="powersave", energy_performance_preference="power")),
    ("cpu-clock", HOST, cpufreq(scaling_max_freq="2000000")),
    # what intel_pstate then says
    ("turbo", HOST, all_of(file(f"{CPU}/intel_pstate/no_turbo", "1\n"), cpufreq(scaling_max_freq="2100000"))),
    ("turbo", HOST, file(f"{CPU}/cpufreq/boost", "0\n")),
    ("affinity", HOST, plant_pinned),
    ("cpu-quota", HOST, all_of(
        file(f"{CGROUP}/cpu.max", "200000 100000\n"),
        file("sys/fs/cgroup/user.slice/cpu.max", "600000 100000\n"),  # around it, and looser
        file(f"{CGROUP}/cpu.stat", "nr_periods 90\nnr_throttled 45\n"),
    )),
    ("cpu-quota", HOST, all_of(
        file("proc/self/cgroup", OLD_GROUPS),
        file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
        file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
    )),
    ("steal", HOST, lambda patient: setattr(patient, "steal", 1.6)),
    ("load", HOST, lambda patient: setattr(patient, "other", 1.6)),
    ("blas-threads", HOST, all_of(blas(num_threads=1), variable("OPENBLAS_NUM_THREADS", "1"))),
    ("blas-threads", HOST, blas(num_threads=64)),
    ("blas-target", HOST, plant_reference_blas),
    ("blas-target", HOST, blas(architecture="Prescott")),
    ("blas-target", HOST, all_of(blas(architecture="Haswell"), variable("OPENBLAS_CORETYPE", "Haswell"))),
    ("driver-threads", INTEL, all_of(device(INTEL, compute_units=1), variable("DPCPP_CPU_NUM_CUS", "1"))),
    ("driver-threads", POCL, device(POCL, compute_units=2)),
    ("pcie", GPU, board(CurrPcieLinkWidth=8)),
    ("pcie", GPU, board(CurrPcieLinkGeneration=3)),
    ("pcie", GPU, board(CurrPcieLinkGeneration=4, MaxPcieLinkGeneration=4)),
    ("gpu-power", GPU, board(EnforcedPowerLimit=400_000)),
    ("gpu-clock", GPU, board(ApplicationsClock=990)),
    ("gpu-load", GPU, plant_busy_board),
    ("gpu-load", GPU, all_of(
        plant_busy_board, lambda patient: patient.board.pop("nvmlDeviceGetUtilizationRates")
    )),
)  # fmt: skip


def test_a_planted_cause_is_named_and_nothing_else(
    tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "install_command", lambda: 'pip install "gemmbench[cpu]"')
    pages = []
    for number, (check, index, plant) in enumerate(CAUSES):
        patient = Patient(tmp_path / str(number))
        plant(patient)
        report = examine(patient.machine())
        assert named(report) == [(check, index)]
        finding = report.findings[0]
        assert not re.search(r"None|\bnan\b", str(asdict(finding)).replace("'device': None", ""))
        lines = [line for line in shown(report).splitlines() if not line.startswith("OK")]
        assert len(lines) <= 3
        seen = "\n".join(f"      {each}" for each in finding.seen)
        pages.append(f"--- {check}\n" + "\n".join(lines) + f"\n{seen}".replace(str(patient.root), ""))
    golden("doctor.txt", "\n\n".join(pages))


def test_every_check_has_a_planted_cause() -> None:
    assert {check for check, *_ in CAUSES} == {check.name for check in CHECKS}


# --- a healthy machine, and what is no fault ----------------------------------------------------------------


def test_a_healthy_machine_gives_no_finding_and_everything_is_looked_at(patient: Patient) -> None:
    report = examine(patient.machine())
    assert report == Diagnosis((), (), report.passed)
    assert len(report.passed) == sum({"host": 1, "gpu": 1, "cpu": 2}[check.of] for check in CHECKS)


rests = board(CurrPcieLinkGeneration=1, PerformanceState=8)
HEALTHY: dict[str, Plant] = {
    "rests": rests,
    "has threads for BLAS on half of its processors": all_of(plant_siblings, blas(num_threads=4)),
    "uses its own powersave": cpufreq(
        scaling_governor="powersave", energy_performance_preference="balance_performance"
    ),
    "loses two ticks": lambda patient: setattr(patient, "steal", 0.32),
}


@pytest.mark.parametrize("change", HEALTHY)
def test_what_is_no_fault_is_no_finding(change: str, patient: Patient) -> None:
    HEALTHY[change](patient)
    assert named(examine(patient.machine())) == []


def test_a_link_that_rests_is_not_looked_at_and_its_width_is(patient: Patient) -> None:
    rests(patient)
    assert [each.check for each in examine(patient.machine()).not_seen] == ["pcie"]
    board(CurrPcieLinkWidth=4)(patient)
    assert "5.0 x4 instead" in only(patient).problem


# --- unreadable files ---------------------------------------------------------------------------------------


def test_no_unreadable_file_gives_a_finding_or_a_crash(patient: Patient) -> None:
    alike = re.compile(r"/cpu[1-9]/")  # other processors'
    files = [path for path in patient.root.rglob("*") if path.is_file() and not alike.search(str(path))]
    assert len(files) > len(FILES)
    for path in files:
        text = path.read_bytes()
        path.unlink()
        path.mkdir()  # which no reader can read, and root can neither
        assert not examine(patient.machine()).findings, f"{path} cannot be read"
        path.rmdir()
        for garbage in (b"\xff\xfe: b,\n\n:", b"-1"):
            path.write_bytes(garbage)
            examine(patient.machine())
        path.write_bytes(text)


def test_only_the_programs_of_others_are_load(patient: Patient) -> None:
    quiet = patient.machine(sleep=lambda seconds: patient.proc.run(seconds, own=1.6))
    assert not examine(quiet).findings
    (finding,) = examine(
        patient.machine(sleep=lambda seconds: patient.proc.run(seconds, own=1.6, other=1.6))
    ).findings
    assert finding.problem.startswith("Other programs use 1.60 of 8")
    assert finding.problem.endswith(f"other ({OTHER}) 1.60 cores")


@pytest.mark.parametrize("is_blind", [True, False])  # or the times stand still
def test_times_of_processors_that_cannot_be_read_are_not_looked_at(is_blind: bool, patient: Patient) -> None:
    patient.proc.is_blind = is_blind
    report = examine(patient.machine(sleep=lambda seconds: None))
    assert not report.findings
    assert {each.check for each in report.not_seen} >= {"load", "steal"}


def test_what_cannot_be_read_is_said(patient: Patient) -> None:
    governor = patient.root / CPU / "cpu0/cpufreq/scaling_governor"
    governor.unlink()
    governor.mkdir()
    report = examine(patient.machine())
    assert [(each.check, each.reason) for each in report.not_seen] == [
        ("governor", f"/{CPU}/cpu0/cpufreq/scaling_governor: is a directory")
    ]
    assert "Could not read: governor." in shown(report)
    assert f"-     governor: /{CPU}/cpu0/cpufreq/scaling_governor: is a directory" in shown(report, 120, True)


def test_an_empty_root_is_not_looked_at(tmp_path: Path) -> None:
    machine = replace(Patient(tmp_path / "root").machine(), root=tmp_path / "nowhere", devices=(), chosen=())
    machine.counters.is_blind = True
    report = examine(machine)
    assert named(report) == [("driver-missing", None)]  # there are no devices
    assert {each.check for each in report.not_seen} >= {"governor", "load", "affinity", "cpu-quota"}


def test_a_board_that_answers_nothing_is_not_looked_at(patient: Patient) -> None:
    for name in BOARD:
        del patient.board[name]
        assert not examine(patient.machine()).findings, name

    def missing(device: object) -> Any:
        raise CounterError("NVML says: nvml shared library not found")

    report = examine(patient.machine(open_board=missing))
    assert not report.findings
    assert "gpu-load: NVML says: nvml shared library not found" in shown(report, verbose=True)


def test_a_busy_board_that_does_not_list_its_processes_is_busy(patient: Patient) -> None:
    plant_busy_board(patient)
    del patient.board["nvmlDeviceGetComputeRunningProcesses"]
    finding = only(patient)
    assert finding.check == "gpu-load"
    assert finding.seen[1] == "nvmlDeviceGetComputeRunningProcesses: not reported"


def test_devices_that_cannot_be_listed_are_said(patient: Patient) -> None:
    report = examine(patient.machine(devices=(), chosen=(), trouble="listing the OpenCL devices failed: x"))
    assert shown(report).startswith("WARN  Listing the OpenCL devices failed: x\n")


# --- missing drivers ----------------------------------------------------------------------------------------


def test_a_machine_without_a_driver_gets_pip_and_the_guide(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "install_command", lambda: 'pip install "gemmbench[cpu]"')
    patient.devices = ()
    (patient.root / f"sys/bus/pci/devices/{SLOT}/vendor").unlink()
    finding = only(patient)
    assert finding.command == 'pip install "gemmbench[cpu]"'
    assert drivers.GUIDE in finding.problem


def test_a_gpu_that_this_user_may_not_use(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    patient.write(f"sys/bus/pci/devices/{SLOT}/vendor", "0x1002\n")
    patient.write("dev/dri/renderD128", "")
    patient.write("dev/dri/renderD129", "")  # of another GPU
    patient.write(f"sys/bus/pci/devices/{SLOT}/drm/renderD128", "")
    patient.devices = (CPU_DEVICE,)
    assert drivers.GUIDE in only(patient).fix
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("129"))
    assert drivers.GUIDE in only(patient).fix
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("128"))
    assert only(patient).command == "sudo usermod -aG render $USER"
    (patient.root / "dev/dri/renderD128").unlink()  # as in a container that has not got it
    assert drivers.GUIDE in only(patient).fix


def test_a_limit_on_what_is_mounted_was_set_by_a_containers_host(patient: Patient) -> None:
    patient.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    finding = only(patient)
    assert finding.command == "docker update --cpus 8 CONTAINER"
    assert finding.fix == "Raise it on the container's host"


def test_processors_that_a_control_group_takes_are_its_owners(patient: Patient) -> None:
    plant_pinned(patient)
    patient.write(f"{CGROUP}/cpuset.cpus.effective", "0-3\n")
    finding = only(patient)
    assert finding.command == ""
    assert "Slurm" in finding.fix


# --- what is shown ------------------------------------------------------------------------------------------


def shown(report: Diagnosis, width: int = 80, verbose: bool = False) -> str:
    printed = StringIO()
    console = Console(file=printed, width=width, highlight=False, markup=False, emoji=False)
    console.print(diagnosis_page(report, (CPU_DEVICE, GPU_DEVICE, POCL_DEVICE), verbose), crop=False)
    return re.sub(" +\n", "\n", printed.getvalue())


@pytest.mark.parametrize("width", [40, 80, 120])
def test_commands_are_never_broken_and_nothing_else_is_too_wide(width: int, patient: Patient) -> None:
    plant_governor(patient)
    board(EnforcedPowerLimit=400_000)(patient)
    report = examine(patient.machine())
    lines = shown(report, width).splitlines()
    commands = [line for line in lines if "sudo" in line]
    assert commands == [f"      {finding.fix}: {finding.command}" for finding in report.findings]
    assert max(len(line) for line in lines if line not in commands) <= width
    assert "700 W" in " ".join(lines)
    assert "16 other checks passed." in " ".join(lines)
    detailed = shown(report, width, verbose=True)
    assert "EnforcedPowerLimit: 400000 mW" in " ".join(detailed.split())
    assert detailed.count("\nOK    ") == len(report.passed)


def test_a_healthy_machine_has_one_line(patient: Patient) -> None:
    assert shown(examine(patient.machine())) == "OK    18 checks passed.\n"


def test_json_has_every_finding_and_what_could_not_be_read(patient: Patient) -> None:
    plant_governor(patient)
    (patient.root / CPU / "online").unlink()
    record = json.loads(json.dumps(to_record(examine(patient.machine()))))
    assert [(each["check"], each["device"]) for each in record["findings"]] == [("governor", None)]
    assert set(record["findings"][0]) == {
        "check", "device", "problem", "fix", "command", "seen",
    }  # fmt: skip
    assert [each["check"] for each in record["not_readable"]] == ["affinity"]


def test_the_page_of_the_checks_is_that_of_the_table() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    rows = (
        page.partition("| check | reads | warns of |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    )
    assert [row.split(" | ")[0] for row in rows] == [f"| `{check.name}`" for check in CHECKS]
    assert all(re.fullmatch(r"\| `[^|]+` \| [^|]{8,} \| [^|]{8,} \|", row) for row in rows)


def test_ranges_are_written_as_linux_does() -> None:
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert reading.parse_numbers("0-2,5,7-8", "x") == (0, 1, 2, 5, 7, 8)
