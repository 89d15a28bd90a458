"""Compiles two kernels with Triton, and writes a workload beside their entries of Triton's cache.

    python3 triton_kernel.py FOLDER
    aorta exec FOLDER/triton.aorta --allow-kernels --verify

The workload runs them between kernels of aorta: one element by element, and a reduction of rows that needs shared memory.
"""

import os
import pathlib
import shutil
import sys

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "triton")
CACHE = FOLDER / "cache"
os.environ["TRITON_CACHE_DIR"] = str(CACHE)

import torch
import triton
import triton.language as tl


@triton.jit
def add_scaled(x, y, out, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + scale * tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def row_max(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf"))
    tl.store(out + row, tl.max(value, axis=0))


WORKLOAD = """//! Kernels that Triton has compiled, between kernels of aorta.

param rows = 4099
param columns = 1021 in 1..=1024

preset tiny { rows = 7 }

kernel add_scaled(x: f32[n], y: f32[n], scale: f32 -> out: f32[n]) {
  grid: ceil_div(n, 1024),
  file: "add_scaled.json",
  args: [x, y, out, scale, n],
  flops: 2 * n,
  reference: map(x + scale * y),
}

kernel row_max(x: f32[r, c] -> out: f32[r]) {
  grid: r,
  file: "row_max.json",
  args: [x, out, c],
  flops: r * c,
  reference: max(x, dims: [1]),
}

stream s
buffer x, y, z: f32[rows * columns]
buffer best: f32[rows]

step {
  on s {
    first: map(x * y -> z)
    scaled: add_scaled(z, y, 0.5)
    largest: row_max(view(scaled, [rows, columns]) -> best)
    map(best + 1 -> best)
  }
}

metric rate = bandwidth(scaled)
"""


def main():
    n = 4099 * 1021
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out, best = torch.empty_like(x), torch.empty(4099, device="cuda")
    # 0.5 is no whole number and `n` no multiple of 16, so that Triton assumes nothing of either.
    add_scaled[(triton.cdiv(n, 1024),)](x, y, out, 0.5, n, BLOCK=1024)
    row_max[(4099,)](out, best, 1021, BLOCK=1024, num_warps=8)
    torch.cuda.synchronize()
    for name in ["add_scaled", "row_max"]:
        [metadata] = CACHE.glob(f"*/{name}.json")
        for ending in [".json", ".cubin"]:
            shutil.copy(metadata.with_suffix(ending), FOLDER / (name + ending))
    (FOLDER / "triton.aorta").write_text(WORKLOAD)
    print(f"torch {torch.__version__}, triton {triton.__version__}: {FOLDER / 'triton.aorta'}")


main()
