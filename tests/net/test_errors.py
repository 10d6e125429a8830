"""What the user can put right: every sentence on stderr with its exit status; nothing changes on the disk.

The command lines are in `errors.txt`; the files that they name are made here, of a saved run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.net import facts_machine, runs
from tests.net.conftest import ROOT, OpenBook, Use

LONG = 300 * "x"
_, *PARTS = re.split(r"^# (.*)\n", Path(__file__).with_name("errors.txt").read_text(), flags=re.MULTILINE)
COMMANDS = dict(zip(PARTS[::2], map(str.splitlines, PARTS[1::2]), strict=True))
DEVICES = ("cpu-intel", "cpu-pocl", "h200")

TOML = {
    "t": '[[row]]\nvariant = "tiled"\nthreshold = "40 %"\n',
    "bad": '[[row]]\nvariant = 3\nthreshold = "5 %"\n',
    "not-toml": "[[row\n",
    "bad-size": '[[row]]\nsize = "small"\nthreshold = "5 %"\n',
    "empty-range": '[[row]]\nsize = "9..8"\nthreshold = "5 %"\n',
    "bad-threshold": '[[row]]\nthreshold = "much"\n',
    "unknown-key": '[[row]]\nkernel = "tiled"\nthreshold = "5 %"\n',
}
CSV = {
    "shapes": "m,n,k\n8,8,8\n",
    "word": "m,n,k\n8,8,many\n",
    "empty": "",
    "lacking": "m,n\n8,8\n",
    "negative": "m,n,k\n8,-8,8\n",
    "huge": "m,n,k\n8,8,8\n99999999999,8,8\n",
    "blank": "\n\n",
    "header": "m,n,k\n",
    "headerless": "1,2,3\n",
    "surplus": "m,n,k,count\n1,2,3,4\n",
    "twice": "m,n,k,m\n1,2,3,4\n",
    "fraction": "m,n,k\n1.5,2,3\n",
    "short-row": "m,n,k\n1,2\n",
    "long-row": "m,n,k\n1,2,3,4\n",
    "long-name": f"m,n,k,name\n1,2,3,{41 * 'x'}\n",
    "quote": 'm,n,k,name\n1,2,3,"a\n',
    "digits": f"m,n,k\n{5000 * '9'},2,3\n",
}


@pytest.fixture(autouse=True)
def files(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the commands name."""
    use(facts_machine)
    monkeypatch.setenv("GEMMBENCH_FAKE_FACTS", " ".join(f"plots/{name}-sweep-k.jsonl" for name in DEVICES))
    parts = runs.repetitions("tests/data/aa/cpu-intel.jsonl")
    for number in (0, 1, 2, 3):
        runs.write(f"base{number}.jsonl", *parts[number])
    header, rows = parts[4]
    for name in ("good.jsonl", "same.jsonl", "once.jsonl", "run.svg"):
        runs.write(name, header, rows)
    Path("aa.jsonl").write_bytes(Path("tests/data/aa/cpu-intel.jsonl").read_bytes())
    Path("peak.jsonl").write_bytes(Path("plots/cpu-intel-peak.jsonl").read_bytes())
    Path("link.jsonl").symlink_to("base1.jsonl")
    Path("folder").mkdir()
    for name, text in TOML.items():
        Path(f"{name}.toml").write_text(text)
    for name, text in CSV.items():
        Path(f"{name}.csv").write_text(text)
    matrices()
    damaged(header, rows)


def damaged(header: runs.Line, rows: list[runs.Line]) -> None:
    """Runs that cannot be read, or that nothing can be done with."""
    first, *others = rows
    whole = Path("good.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    Path("cut.jsonl").write_bytes(whole[:-20])
    Path("cut-row.jsonl").write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    Path("cut-header.jsonl").write_bytes(lines[0][:50])
    Path("empty.jsonl").write_bytes(b"")
    Path("no-rows.jsonl").write_bytes(lines[0])
    Path("list.jsonl").write_text("[]\n")
    Path("number.jsonl").write_text("3\n")
    Path("picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    batch = re.compile(rb'"batch":\d+')
    for name in (b"NaN", b"Infinity"):
        Path(f"{name.decode().lower()}.jsonl").write_bytes(lines[0] + batch.sub(b'"batch":' + name, lines[1]))

    def of_header(name: str, **changed: Any) -> None:
        runs.write(f"{name}.jsonl", {**header, **changed}, rows)

    def of_row(name: str, **changed: Any) -> None:
        runs.write(f"{name}.jsonl", header, [{**first, **changed}, *others])

    def seconds(value: Any) -> Any:
        return {name: {**scope, "seconds": [value]} for name, scope in first["samples"].items()}

    of_header("newer", schema_version=99)
    of_header("version-0", schema_version=0)
    of_header("version-word", schema_version="one")
    runs.write("no-version.jsonl", {k: v for k, v in header.items() if k != "schema_version"}, rows)
    moved = {
        "devices": [{**header["devices"][0], "name": "NVIDIA H200"}],
        "host": {**header["host"], "cpu": "another"},
    }
    of_header("other", **moved)
    of_header("elsewhere", devices=[{**header["devices"][0], "name": "A device of another machine"}])
    of_row("type", variant=3)
    of_row("type-in-problem", problem={**first["problem"], "m": "many"})
    of_row("type-of-samples", samples=[1])
    of_row("unknown-kind", kind="nonsense")
    of_row("unknown-status", status="nonsense")
    of_row("unknown-device", device=7)
    of_row("zero-time", samples=seconds(0.0))
    of_row("negative-time", samples=seconds(-1e-3))
    of_row("beside-nobody", parameters={"beside": "7"})
    runs.write("lacking-field.jsonl", header, [{k: v for k, v in first.items() if k != "status"}, *others])
    crashed = [{**row, "status": "crashed", "reason": "gone", "samples": {}} for row in rows]
    runs.write("dead.jsonl", header, crashed)


def matrices() -> None:
    """What `gemm` may be given."""
    np.save("a.npy", np.ones((8, 4), "f4"))
    np.save("c.npy", np.ones((8, 6), "f4"))
    np.save("b.npy", np.ones((4, 6), "f4"))
    np.save("b5.npy", np.ones((5, 6), "f4"))
    np.save("b64.npy", np.ones((4, 6), "f8"))
    np.save("int.npy", np.ones((4, 6), "i4"))
    np.save("vector.npy", np.ones(8, "f4"))
    np.save("objects.npy", np.array([[None]]), allow_pickle=True)
    np.savez("archive.npz", a=np.ones((8, 4), "f4"))
    np.save("complex.npy", np.ones((4, 6), "c8"))
    np.save("number.npy", np.float32(1))
    np.save("cube.npy", np.ones((2, 2, 2), "f4"))
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:-4])
    Path("cut-header.npy").write_bytes(Path("a.npy").read_bytes()[:50])
    Path("empty.npy").write_bytes(b"")


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("part", COMMANDS, ids=lambda part: part.split()[0].strip(","))
def test_errors(part: str, book: OpenBook) -> None:
    page = book(f"errors-{list(COMMANDS).index(part)}")
    before, odd = contents(), []
    for command in COMMANDS[part]:
        words = command.replace("LONG", LONG).replace("KERNELS", str(ROOT / "kernels")).split()
        status = page.call(*words)
        _, lines = page.sections.popitem()
        page.write(f"$ gemmbench {command}", [line.replace(LONG, "LONG") for line in lines])
        if (status, sum(line.startswith("! gemmbench: ") for line in lines)) != (2, 1):
            odd.append((command, lines[:2]))
        assert contents() == before, command
    assert not odd
