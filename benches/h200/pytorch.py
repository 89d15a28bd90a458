#!/usr/bin/env python3
"""Single operations beside PyTorch: matrix products, softmax, a chain of elementwise operations, small and large.

    python3 benches/h200/pytorch.py --aorta target/release/aorta [--rounds 5] [--markdown FILE]

Both make a graph of the same calls on operands of the same shapes, with random contents of the same distribution, and
time it by events around it: what is compared is the device's time. In alternation; a figure is the median of the
rounds, each the median of 30 graphs. PyTorch writes into a tensor that is there (`out=`) where it can. The elementwise
chain is eager (a kernel for each operation) and compiled by `torch.compile`.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

GEMMS = [("gemm", dtype, (size, size, size)) for dtype in ("f32", "tf32", "bf16", "f16") for size in (128, 1024, 4096, 8192)]
GEMMS += [("gemm", dtype, (32, 4096, 4096)) for dtype in ("bf16", "f16")]
ROWS = ((64, 128), (4096, 128), (4096, 1024), (16384, 1024), (4096, 4096), (1024, 16384), (512, 131072))
SOFTMAX = [("softmax", dtype, (m, n, 1)) for dtype in ("f32", "bf16") for m, n in ROWS]
CHAINS = [("map", dtype, (m, n, 1)) for dtype in ("f32", "bf16") for m, n in ((64, 1024), (1024, 1024), (8192, 8192))]


def count_of(call, dtype, dims):
    """Calls in a graph: about a millisecond of them, 2 to 50."""
    m, n, k = dims
    rate = {"f32": 4e13, "tf32": 3e14}.get(dtype, 6e14)
    seconds = 2.0 * m * n * k / rate if call == "gemm" else m * n * 8 / 3e12
    return max(2, min(50, int(1e-3 / max(seconds, 2e-6))))


def graphed(body, count):
    """A graph of `count` calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(count):
            body()
    return graph


def timed(graph, count):
    """Microseconds of a call: the median of 30 graphs."""
    times = []
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(40):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn >= 10:
            times.append(begin.elapsed_time(end) * 1e3 / count)
    return statistics.median(times)


def bodies(call, dtype, dims):
    """What PyTorch runs, by name."""
    m, n, k = dims
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    tensor = lambda *shape: torch.randn(*shape, device="cuda").to(TYPES[dtype])
    y = torch.empty(m, n, device="cuda", dtype=TYPES[dtype])
    if call == "gemm":
        a, b = tensor(m, k), tensor(k, n)
        return {"eager": lambda: torch.mm(a, b, out=y)}
    x = tensor(m, n)
    if call == "softmax":
        return {"eager": lambda: torch.softmax(x, dim=1, out=y)}
    chain = lambda x: torch.nn.functional.gelu(x * 1.5 + 0.5) * torch.sigmoid(x) - x
    compiled = torch.compile(chain)
    return {"eager": lambda: chain(x), "compiled": lambda: compiled(x)}


def ours(args, call, dtype, dims, count, folder):
    m, n, k = dims
    record = pathlib.Path(folder) / "record.json"
    compute = dtype if call == "gemm" and dtype in ("f32", "tf32") else "auto"
    sets = {"call": call, "count": count, "dtype": "f32" if dtype == "tf32" else dtype, "compute": compute, "m": m, "n": n, "k": k}
    command = [args.aorta, "exec", str(HERE / "files/shapes.aorta"), "--backend", "cuda", "--launch", "graph", "--warmup", "10",
               "--iterations", "30", "--config", "in_flight=1", "--config", "observed_iterations=0", "--json", str(record)]
    command += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())["variants"][0]["time"]["p50_ns"] / 1e3 / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="one of gemm, softmax, map")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new case after that many")
    args = parser.parse_args()
    begin = time.monotonic()
    lines = ["| operation | type | shape | PyTorch | PyTorch, µs | aorta, µs | PyTorch over aorta | by round |",
             "| --- | --- | --- | --- | ---: | ---: | ---: | --- |"]
    with tempfile.TemporaryDirectory() as folder:
        for call, dtype, dims in GEMMS + SOFTMAX + CHAINS:
            if args.only not in (None, call):
                continue
            count = count_of(call, dtype, dims)
            if time.monotonic() - begin > args.seconds:
                print(f"| {call} | {dtype} | {dims} | not reached | | | | |", flush=True)
                continue
            graphs = {name: graphed(body, count) for name, body in bodies(call, dtype, dims).items()}
            theirs, mine = {name: [] for name in graphs}, []
            for _ in range(args.rounds):
                for name, graph in graphs.items():
                    theirs[name].append(timed(graph, count))
                mine.append(ours(args, call, dtype, dims, count, folder))
            m, n, k = dims
            shape = f"[{m}, {k}] × [{k}, {n}]" if call == "gemm" else f"[{m}, {n}]"
            for name, rounds in theirs.items():
                ratios = [their / our for their, our in zip(rounds, mine)]
                their, our = statistics.median(rounds), statistics.median(mine)
                lines.append(f"| {call} | {dtype} | {shape} | {name} | {their:.2f} | {our:.2f} | {their / our:.2f} | "
                             f"{min(ratios):.2f} to {max(ratios):.2f} |")
                print(lines[-1], flush=True)
            del graphs
            torch.cuda.empty_cache()
    text = "\n".join(lines) + "\n"
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
