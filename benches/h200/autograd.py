#!/usr/bin/env python3
"""Gradients of a transformer block by `grad`, beside PyTorch's autograd, in sizes drawn by seed.

    python3 benches/h200/autograd.py --aorta target/release/aorta [--seed 1] [--cases 6] [--backend cuda] [--launch graph]

Each case runs `files/transformer_block.aorta` once and writes all buffers. PyTorch computes the same loss from the same
buffers in double precision on the CPU. An error is the norm of the difference over the norm of autograd's gradient.
"""
import argparse
import pathlib
import random
import subprocess
import tempfile

import numpy
import torch

FILE = pathlib.Path(__file__).parent / "files" / "transformer_block.aorta"
WEIGHTS = ["norm_1", "w_q", "w_k", "w_v", "w_o", "norm_2", "w_gate", "w_up", "w_down"]

# Relative errors of sums in single precision lie far below this, those of TF32 above.
BOUND = 1e-4


def rms_norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def loss(t, heads):
    tokens, width = t["x"].shape
    n = rms_norm(t["x"], t["norm_1"])
    q, k, v = ((n @ t[name]).view(tokens, heads, -1).transpose(0, 1) for name in ("w_q", "w_k", "w_v"))
    q, k = rope(q, t["cos"], t["sin"]), rope(k, t["cos"], t["sin"])
    weights = torch.softmax(q @ k.transpose(1, 2) * (width / heads) ** -0.5, -1)
    h = t["x"] + (weights @ v).transpose(0, 1).reshape(tokens, width) @ t["w_o"]
    n = rms_norm(h, t["norm_2"])
    y = h + (torch.nn.functional.silu(n @ t["w_gate"]) * (n @ t["w_up"])) @ t["w_down"]
    return torch.nn.functional.mse_loss(y, t["target"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--launch", default="graph")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    worst_of_all = 0.0
    print("| tokens | heads | head | hidden | worst gradient | its error |\n| ---: | ---: | ---: | ---: | --- | ---: |")
    for _ in range(args.cases):
        sizes = {"tokens": draw.choice([1, 7, 61, 96, 129, 333]), "heads": draw.choice([1, 3, 4, 8]),
                 "head": draw.choice([2, 10, 32, 64]), "hidden": draw.choice([5, 64, 257, 512])}
        with tempfile.TemporaryDirectory() as folder:
            command = [args.aorta, "exec", str(FILE), "--backend", args.backend, "--launch", args.launch, "--effort", "sanity",
                       "--outputs", folder]
            for name, size in sizes.items():
                command += ["--set", f"{name}={size}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
            found = {path.stem: torch.from_numpy(numpy.load(path)).double() for path in pathlib.Path(folder).rglob("*.npy")}
        wanted = ["x"] + WEIGHTS
        tensors = {name: found[name].clone().requires_grad_(name in wanted) for name in wanted + ["target", "cos", "sin"]}
        result = loss(tensors, sizes["heads"])
        result.backward()
        errors = {"loss": abs(found["loss"].item() - result.item()) / abs(result.item())}
        for name in wanted:
            expected = tensors[name].grad
            errors[f"d{name}"] = ((found[f"d{name}"] - expected).norm() / expected.norm()).item()
        worst = max(errors, key=errors.get)
        worst_of_all = max(worst_of_all, errors[worst])
        print(" | ".join(["|", *map(str, sizes.values()), worst, f"{errors[worst]:.1e} |"]))
    if worst_of_all > BOUND:
        raise SystemExit(f"an error of {worst_of_all:.1e} is above {BOUND:.0e}")


if __name__ == "__main__":
    main()
