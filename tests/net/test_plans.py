"""`--dry-run` of every measuring command on the devices of saved runs: Intel's, PoCL's, the H200."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net import facts_machine
from tests.net.conftest import OpenBook, Use

FACTS = {name: f"plots/{name}-sweep-k.jsonl" for name in ("cpu-intel", "cpu-pocl", "h200")}
SHAPES = "name,m,n,k\nflat,1,4096,64\n,100,10,1\n"
# On all three devices, and what each of them has by default.
PLANS = (
    "devices",
    "peak",
    "peak --all",
    "peak --types half,bfloat16,char --only compute,latency",
    "peak --only memory --concurrent",
    "gemm",
    "gemm -m 100 -n 1 -k 0 --kernel ladder",
    "square",
    "square --sizes 8,1000,4096 --kernel best --baseline all --dtype float,half,tf32 --no-peak",
    "square --kernel naive,tiled,auto --concurrent --no-peak",
    "square --kernel register --param BM=32 --param TM=2 --cold --memory staged --energy --budget 0.5",
    "sweep-k",
    "precision",
    "precision --sizes 64,512 --dtype half,bfloat16,tf32,char,double --kernel nv-mma,nv-wgmma,padded",
    "workloads",
    "workloads --file shapes.csv --set odd --batch 4 --prompt 128 --kernel naive,auto,numpy",
    "check tests/data/ci-base.jsonl --across device,driver",
    "check tests/data/ci-base.jsonl --ratio numpy --across device,driver",
    "check tests/data/aa/h200.jsonl --aa 3 --device h200",
)
TUNED = (
    "intel --kernel register",
    "intel --kernel cpu-packed --sizes 64,100",
    "pocl --kernel register -m 1000 -n 10 -k 1",
    "h200 --kernel naive --dtype double",
    "h200 --kernel register --budget 20",
)


@pytest.fixture(autouse=True)
def devices(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(facts_machine)
    monkeypatch.setenv("GEMMBENCH_FAKE_FACTS", " ".join(FACTS.values()))
    Path("shapes.csv").write_text(SHAPES)


def test_every_device(book: OpenBook) -> None:
    page = book("plans")
    for plan in PLANS:
        command, *words = plan.split()
        if command == "devices":
            page.call("devices")
            continue
        if "--device" not in words:
            words += ["--device", "all"]
        page.call(command, *words, "--dry-run")
    page.call("peak", "--describe", "--dry-run")


@pytest.mark.parametrize("device", FACTS)
def test_one_device(device: str, book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    page = book(f"plans-{device}")
    monkeypatch.setenv("GEMMBENCH_FAKE_FACTS", FACTS[device])
    page.call("square", "--kernel", "best,auto", "--baseline", "all", "--dry-run")
    page.call("precision", "--kernel", "best", "--dtype", "half,char", "--dry-run")


def test_spaces_to_search(book: OpenBook) -> None:
    page = book("plans-tune")
    for words in TUNED:
        page.call("tune", "--dry-run", "--device", *words.split())
