#!/usr/bin/env python3
"""A linear layer in fp8 with its gradients, by aorta and by PyTorch, both as a CUDA graph.

    python3 benches/h200/fp8_training.py --aorta target/release/aorta [--compile]

PyTorch does what torchao does: it quantizes activations and weights to e4m3 and gradients to e5m2, with a scale from the largest element
of each tensor, and multiplies by `torch._scaled_mm` forward and backward, after copies of the transposed matrices. Times are medians.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import torch

FILE = pathlib.Path(__file__).parent / "files" / "fp8_linear_layer.aorta"
SIZES = [(8192, 4096, 4096), (8192, 4096, 14336), (2048, 2048, 2048)]
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def quantize(x):
    scale = torch.exp2(torch.ceil(torch.log2(x.abs().max().float().clamp_min(1e-30) / torch.finfo(E4M3).max)))
    return (x / scale).to(E4M3), scale


def in_fp8(x, w, dy):
    (x8, of_x), (w8, of_w) = quantize(x), quantize(w)
    y = torch._scaled_mm(x8, w8.t(), scale_a=of_x, scale_b=of_w, out_dtype=torch.bfloat16)
    of_dy = (dy.abs().max().float() / torch.finfo(E5M2).max).clamp_min(1e-38)
    dy8 = (dy.float() / of_dy).to(E5M2)
    dx = torch._scaled_mm(dy8, w8.t().contiguous().t(), scale_a=of_dy, scale_b=of_w, out_dtype=torch.bfloat16)
    dw = torch._scaled_mm(dy8.t().contiguous(), x8.t().contiguous().t(), scale_a=of_dy, scale_b=of_x, out_dtype=torch.float32)
    return y, dx, dw


def in_bf16(x, w, dy):
    narrow = w.bfloat16()
    return x @ narrow.t(), dy @ narrow, (dy.t() @ x).float()


def median_of_graph(function, tensors):
    """The median time of a call in microseconds."""
    for _ in range(3):
        function(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(*tensors)
    times = []
    for _ in range(60):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times[10:])[25]


def by_pytorch(function, sizes):
    m, k, n = sizes
    x = torch.randn(m, k, device="cuda").bfloat16()
    w = torch.randn(n, k, device="cuda") * 0.02
    dy = (torch.randn(m, n, device="cuda") * 0.001).bfloat16()
    return median_of_graph(function, (x, w, dy))


def by_aorta(aorta, sizes, gradients):
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.json"
        command = [aorta, "exec", str(FILE), "--backend", "cuda", "--launch", "graph", "--fuse", "--json", str(record)]
        for name, value in zip(("m", "k", "n", "gradients"), (*sizes, gradients)):
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        variant = json.loads(record.read_text())["variants"][0]
    return variant["time"]["p50_ns"] / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--compile", action="store_true", help="time PyTorch's function compiled by torch.compile, too")
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    names = ["PyTorch fp8", "PyTorch bf16", *["PyTorch fp8, compiled"] * args.compile, "aorta fp8", "aorta fp8 forward only"]
    print(f"| m, k, n | {' | '.join(names)} |\n| --- |{' ---: |' * len(names)}", flush=True)
    for sizes in SIZES:
        times = [by_pytorch(function, sizes) for function in (in_fp8, in_bf16)]
        if args.compile:
            torch._dynamo.reset()
            times.append(by_pytorch(torch.compile(in_fp8), sizes))
        torch.cuda.empty_cache()
        times += [by_aorta(args.aorta, sizes, gradients) for gradients in ("e5m2", "none")]
        print(f"| {', '.join(map(str, sizes))} | {' | '.join(f'{time:.1f} µs' for time in times)} |", flush=True)


if __name__ == "__main__":
    main()
