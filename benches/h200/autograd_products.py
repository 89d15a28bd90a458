#!/usr/bin/env python3
"""Gradients of products with gated epilogues by `grad`, beside PyTorch's autograd, in sizes drawn by seed.

    python3 benches/h200/autograd_products.py --aorta target/release/aorta [--seed 1] [--cases 6] [--backend cuda]

Each case runs `files/gated_products.aorta` once and writes all buffers. PyTorch computes the same from the same buffers in double
precision on the CPU. An error is the norm of the difference over the norm of PyTorch's tensor.
"""
import argparse
import pathlib
import random
import subprocess
import tempfile

import numpy
import torch

FILE = pathlib.Path(__file__).parent / "files" / "gated_products.aorta"
FUNCTIONS = {"swiglu": torch.nn.functional.silu, "geglu": torch.nn.functional.gelu, "reglu": torch.relu,
             "geglu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}

# Relative errors of sums in single precision lie far below this.
BOUND = 1e-4


def gated(sums, function):
    gate, up = sums.chunk(2, -1)
    return function(gate) * up


def expected(found):
    """The results and gradients that PyTorch computes."""
    wanted = {}
    for name, function in FUNCTIONS.items():
        x, w, bias = (found[key].clone().requires_grad_() for key in ("x", "w", "bias"))
        y = gated(x @ w + bias, function)
        y.backward(found["dy"])
        wanted |= {f"y_{name}": y.detach(), f"dx_{name}": x.grad, f"dw_{name}": w.grad, f"db_{name}": bias.grad}
    x, matrices = (found[key].clone().requires_grad_() for key in ("x", "matrices"))
    ends = found["ends"].long().tolist()
    parts = [gated(x[begin:end] @ matrices[group], FUNCTIONS["swiglu"])
             for group, (begin, end) in enumerate(zip([0, *ends], ends))]
    y = torch.cat(parts)
    y.backward(found["dy"])
    return wanted | {"y_grouped": y.detach(), "dx_grouped": x.grad, "dw_grouped": matrices.grad}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--backend", default="cuda")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    worst_of_all = 0.0
    print("| rows | depth | columns | groups | worst tensor | its error |\n| ---: | ---: | ---: | ---: | --- | ---: |")
    for _ in range(args.cases):
        sizes = {"rows": draw.choice([5, 64, 333, 1000]), "depth": draw.choice([3, 32, 129, 512]),
                 "columns": draw.choice([1, 24, 130, 257]), "groups": draw.choice([1, 3, 16])}
        with tempfile.TemporaryDirectory() as folder:
            command = [args.aorta, "exec", str(FILE), "--backend", args.backend, "--effort", "sanity", "--outputs", folder]
            for name, size in sizes.items():
                command += ["--set", f"{name}={size}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
            found = {path.stem: torch.from_numpy(numpy.load(path)).double() for path in pathlib.Path(folder).rglob("*.npy")}
        wanted = expected(found)
        errors = {name: ((found[name] - value).norm() / value.norm().clamp_min(1e-30)).item() for name, value in wanted.items()}
        worst = max(errors, key=errors.get)
        worst_of_all = max(worst_of_all, errors[worst])
        print(" | ".join(["|", *map(str, sizes.values()), worst, f"{errors[worst]:.1e} |"]))
    if worst_of_all > BOUND:
        raise SystemExit(f"an error of {worst_of_all:.1e} is above {BOUND:.0e}")


if __name__ == "__main__":
    main()
