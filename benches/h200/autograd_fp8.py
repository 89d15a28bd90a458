#!/usr/bin/env python3
"""Gradients of 8-bit products by `grad`, beside PyTorch's autograd on dequantized matrices, in sizes drawn by seed.

    python3 benches/h200/autograd_fp8.py --aorta target/release/aorta [--seed 1] [--cases 6] [--backend cuda]

Each case runs `files/fp8_products.aorta` once and writes all buffers. PyTorch computes the same from the same buffers in double
precision on the CPU: the gradients of the dequantized product, and for `quantize: e5m2` the products with the gradient that PyTorch
rounds to `float8_e5m2`. An error is the norm of the difference over the norm of PyTorch's tensor.
"""
import argparse
import pathlib
import random
import subprocess
import tempfile

import numpy
import torch

FILE = pathlib.Path(__file__).parent / "files" / "fp8_products.aorta"

# Relative errors of gradients by type of the product: sums in single precision, and matrices rounded to 16 bits.
BOUNDS = {"f32": 1e-5, "bf16": 5e-3}
# Hopper's matrix units sum products of 8-bit numbers with about 14 bits.
BOUND_OF_8_BITS = 2.0**-12


def loaded(path):
    """The name of a buffer and its contents, of which NumPy has only the bits if the type is `bf16` or has 8 bits."""
    name, *dtype = path.name.removesuffix(".npy").split(".")
    value = torch.from_numpy(numpy.load(path).copy())
    if dtype:
        types = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
        value = value.view(torch.int16 if dtype[0] == "bf16" else torch.int8).view(types[dtype[0]])
    return name, value.double()


def expected(found):
    """The gradients that PyTorch computes."""
    wanted = {}
    for suffix, scales in {"": ("sa", "sb"), "_rows": ("rows_a", "rows_b")}.items():
        x, w, a, b = (found[key].clone().requires_grad_() for key in ("x_of", "w_of", *scales))
        y = (x * a[:, None]) @ (w * b[:, None]).T
        y.backward(found["dy"])
        wanted |= {f"dx{suffix}": x.grad, f"dw{suffix}": w.grad, f"d{scales[0]}": a.grad, f"d{scales[1]}": b.grad}
    gradient = (found["dy"] * (found["y_quantized"] > 0)).float()
    scale = gradient.abs().max() / torch.finfo(torch.float8_e5m2).max
    rounded = (gradient / scale).to(torch.float8_e5m2).double() * scale.double() * found["sa"] * found["sb"]
    return wanted | {"dx_quantized": rounded @ found["w_of"], "dw_quantized": rounded.T @ found["x_of"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--backend", default="cuda")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    failed = False
    print("| m | n | k | type of c | worst gradient | its error | worst with `quantize` | its error |", flush=True)
    print("| ---: | ---: | ---: | --- | --- | ---: | --- | ---: |", flush=True)
    for case in range(args.cases):
        sizes = {name: draw.choice([16, 37, 64, 250, 512, 1000]) for name in ("m", "n", "k")}
        out = ["f32", "bf16"][case % 2]
        with tempfile.TemporaryDirectory() as folder:
            command = [args.aorta, "exec", str(FILE), "--backend", args.backend, "--effort", "sanity", "--outputs", folder]
            for name, value in (sizes | {"out": out}).items():
                command += ["--set", f"{name}={value}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
            found = dict(map(loaded, pathlib.Path(folder).rglob("*.npy")))
        errors = {name: ((found[name] - value).norm() / value.norm().clamp_min(1e-30)).item()
                  for name, value in expected(found).items()}
        shown = [*map(str, sizes.values()), out]
        for is_quantized, bound in ((False, BOUNDS[out]), (True, BOUND_OF_8_BITS)):
            worst = max((name for name in errors if name.endswith("_quantized") == is_quantized), key=errors.get)
            failed |= not errors[worst] <= bound
            shown += [worst, f"{errors[worst]:.1e}"]
        print(f"| {' | '.join(shown)} |", flush=True)
    if failed:
        raise SystemExit("an error is above its bound")


if __name__ == "__main__":
    main()
