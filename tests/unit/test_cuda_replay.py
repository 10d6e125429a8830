"""The PTX of an OpenCL program as CUDA takes it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gemmbench.gemm import opencl_bench
from gemmbench.gemm.cuda import for_cuda
from gemmbench.gemm.opencl_bench import Bench, Turns
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm

KERNEL = """.entry {name}(
\t.param .u64 .ptr .global .align 4 {name}_param_0
)
.reqntid 128, 1, 1
{{
\t.shared .align 16 .b8 {name}_$_tiles[{tiles}];
\t.shared .align 8 .b8 {name}_$_barriers[64];
\tmov.b32 \t%r57, %envreg1;
\tmov.b32 \t%r58, %envreg7;
\tst.shared.u32 \t[{name}_$_tiles], %r57;
}}
"""
HEADER = "//\n.version 9.0\n.target sm_90, texmode_independent\n.address_size 64\n\n"


def program(**tiles: int) -> str:
    return HEADER + "\n".join(KERNEL.format(name=name, tiles=size) for name, size in tiles.items())


def test_a_launch_has_no_offsets_and_kernels_can_be_named() -> None:
    text, asked = for_cuda(program(small=37632))
    assert asked == {}
    assert ".target sm_90\n" in text
    assert "mov.b32 \t%r57, 0;" in text
    assert "mov.b32 \t%r58, %nctaid.y;" in text  # groups that take tiles by turns would go on for ever
    assert "\n.visible .entry small(" in text
    assert ".shared .align 16 .b8 small_$_tiles[37632];" in text


def test_local_memory_beyond_48_kib_is_the_launchs() -> None:
    text, asked = for_cuda(program(small=100_000, small_ragged=98_304, few=49_088))
    assert asked == {"small": 100_000, "small_ragged": 98_304}  # the last has 48 KiB with its barriers
    head, *_ = text.partition(".visible .entry small(")
    assert head.startswith("//\n.version 9.0\n.target sm_90\n.address_size 64\n.extern .shared")
    for name in asked:
        assert text.count(f".extern .shared .align 16 .b8 {name}_$_tiles[];") == 1
        assert f"\t.shared .align 16 .b8 {name}_$_tiles" not in text
        assert f"\t.shared .align 8 .b8 {name}_$_barriers[64];" in text
    assert "\t.shared .align 16 .b8 few_$_tiles[49088];" in text


class Replayed:
    """Graphs whose C is what was replayed last."""

    def __init__(self) -> None:
        self.c, self.result, self.looks = np.zeros(2), np.ones(2), 0

    def graph(self, first: int, count: int) -> tuple[int, int]:
        return first, count

    def fill(self, buffer: object, values: HostArray) -> None:
        self.c = values.copy()

    def seconds(self, graph: tuple[int, int]) -> float:
        self.c = self.result
        return 0.001 * graph[1]

    def left(self, buffer: object, like: HostArray) -> HostArray:
        self.looks += 1
        return self.c


def replaying(most: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, Replayed]:
    """A bench whose C has 16 bytes, and what it replays; up to `most` bytes are compared each time."""
    monkeypatch.setattr(opencl_bench, "_COMPARED_BYTES", most)
    bench, replayed = Bench.__new__(Bench), Replayed()
    answers = SimpleNamespace(verified_result=np.ones(2), erased_result=np.full(2, np.nan))
    vars(bench).update(
        _problem=Gemm(1, 2, 1), _turns=Turns(1), _answers=answers, _graphs=replayed, _buffers=[({"C": 0}, {})]
    )
    vars(bench).update(_compared=set())
    return bench, replayed


@pytest.mark.parametrize(("most", "looks"), [(16, 4), (15, 2)])
def test_a_large_c_is_compared_once_a_graph(most: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, replayed = replaying(most, monkeypatch)
    assert [bench._graph_batch(count).seconds["graph"] for count in (2, 2, 3, 3)] == [0.001] * 4
    assert replayed.looks == looks


def test_where_nothing_was_replayed_nothing_is_compared() -> None:
    """A row is verified before it has any result to compare with."""
    bench = Bench.__new__(Bench)
    vars(bench).update(_graphs=None)
    bench._compare_replayed()


def test_another_c_of_the_last_graph_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, replayed = replaying(15, monkeypatch)
    bench._graph_batch(2)
    replayed.result = np.array([1.0, 2.0])
    bench._graph_batch(2)
    with pytest.raises(NotMeasuredError, match="its C is not the verified one"):
        bench._compare_replayed()
