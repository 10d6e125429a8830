"""A native loop of AMX's instructions and ``gemmbench peak``, alternating: the best of each.

    python -m tools.bench.amx_peak [--device pocl] [--rounds 5] [--native FILE]

The loop is C, one pinned thread for each core, with four sums. gcc 11 or later builds it; `--native` is a
program that was built before, by ``--build FILE`` on another machine. Exit status: 1 if a peak is below 0.95.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import gemmbench

SOURCE = r"""
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sched.h>
#include <sys/syscall.h>
enum { ROUNDS = 2000000 };
static int is_char;
#define FOUR(DOT) { DOT(0, 4, 6); DOT(1, 4, 7); DOT(2, 5, 6); DOT(3, 5, 7); }
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static void *work(void *number)
{
    cpu_set_t one; CPU_ZERO(&one); CPU_SET((long)number, &one); sched_setaffinity(0, sizeof one, &one);
    _Alignas(64) uint8_t shape[64] = {1}, tile[1024];
    for (int i = 0; i < 8; i++) { shape[16 + 2 * i] = 64; shape[48 + i] = 16; }
    memset(tile, 1, sizeof tile);
    __asm__ volatile("" ::"r"(shape) : "memory"); /* gcc 12 drops stores that only ldtilecfg reads */
    _tile_loadconfig(shape);
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    _tile_loadd(4, tile, 64); _tile_loadd(5, tile, 64); _tile_loadd(6, tile, 64); _tile_loadd(7, tile, 64);
    if (is_char)
        for (int i = 0; i < ROUNDS; i++) FOUR(_tile_dpbssd)
    else
        for (int i = 0; i < ROUNDS; i++) FOUR(_tile_dpbf16ps)
    _tile_release();
    return 0;
}
int main(int count, char **words)
{
    if (syscall(SYS_arch_prctl, 0x1023, 18)) { puts("AMX is not permitted"); return 1; }
    int cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[1024];
    is_char = count > 1 && !strcmp(words[1], "char");
    double begin = now();
    for (long i = 0; i < cores; i++) pthread_create(threads + i, 0, work, (void *)i);
    for (int i = 0; i < cores; i++) pthread_join(threads[i], 0);
    printf("%.4g\n", 4.0 * (is_char ? 32768 : 16384) * ROUNDS * cores / (now() - begin) * 1e-9);
}
"""


def build(program: Path) -> None:
    """Compile the loop; it needs no library of the machine that runs it."""
    flags = ("-O2", "-static", "-pthread", "-mamx-tile", "-mamx-bf16", "-mamx-int8")
    subprocess.run(["gcc", *flags, "-xc", "-", "-o", program], input=SOURCE.encode(), check=True)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--native", type=Path)
    parser.add_argument("--build", type=Path)
    args = parser.parse_args()
    if args.build:
        build(args.build)
        return 0
    native = args.native or Path(tempfile.mkdtemp()) / "amx"
    if not args.native:
        build(native)
    best: dict[str, list[float]] = {"bfloat16": [0.0, 0.0], "char": [0.0, 0.0]}
    for _ in range(args.rounds):
        for dtype, (loop, probe) in best.items():
            said = subprocess.run([native, dtype], capture_output=True, text=True, check=True).stdout
            run = gemmbench.peak(device=args.device, types=dtype, budget=0.3)
            rates = [each.get("gflops", 0.0) for each in run.records() if each["variant"] == "amx"]
            best[dtype] = [max(loop, float(said)), max(probe, *rates)]
    for dtype, (loop, probe) in best.items():
        print(f"{dtype}: native loop {loop:,.0f} GFLOPS, peak {probe:,.0f}, ratio {probe / loop:.3f}")
    return int(any(probe < 0.95 * loop for loop, probe in best.values()))


if __name__ == "__main__":
    sys.exit(main())
