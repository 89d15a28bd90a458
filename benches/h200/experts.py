#!/usr/bin/env python3
"""Layers with many experts beside PyTorch, one grouped product for all experts and one product for each.

    python3 benches/h200/experts.py --aorta target/release/aorta [--experts 64,256] [--tokens 2048] [--seconds 150]

aorta runs `moe` with an expert's products side by side (rows beyond an expert's capacity are dropped), `moe` with grouped products, and
`moe_dropless`, each as a graph on one rank. PyTorch routes, sorts, multiplies and puts back the same numbers of rows in a CUDA graph:
by `torch._grouped_mm`, and by a loop of `torch.mm`, whose numbers of rows are those of one routing, since a graph cannot read them.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import tempfile
import time

FORMS = (
    ("side by side", "moe", ("--set", "form=side_by_side")),
    ("grouped", "moe", ("--set", "form=grouped")),
    ("dropless", "moe_dropless", ()),
)


def sizes(tokens, hidden, ffn, top_k, gated, experts):
    return {"experts": experts, "tokens": tokens, "hidden": hidden, "ffn": ffn, "top_k": top_k, "gated": str(gated).lower()}


def ours(aorta, workload, options, folder, chunks):
    """Milliseconds of an iteration; the last line of the message if the run failed."""
    record = pathlib.Path(folder) / "record.json"
    command = [aorta, "exec", workload, "--backend", "cuda", "--ranks", "1", "--launch", "graph", "--set", f"chunks={chunks}",
               "--config", "observed_iterations=0", "--timeout", "100s", "--json", str(record), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(f"{' '.join(command)}\n{done.stderr[-1500:]}", flush=True)
        return math.nan
    return json.loads(record.read_text())["variants"][0]["time"]["p50_ns"] / 1e6


def theirs(torch, experts, tokens, hidden, ffn, top_k, gated):
    """Milliseconds of an iteration of PyTorch: by a grouped product, and by a product for each expert."""
    gated = gated == "true"
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    x, w_router = torch.randn(tokens, hidden, **kind), torch.randn(hidden, experts, **kind)
    shapes = [(experts, hidden, ffn)] * (1 + gated) + [(experts, ffn, hidden)]
    weights = [torch.randn(*shape, **kind) * 0.03 for shape in shapes]
    ones = torch.ones(tokens * top_k, device="cuda", dtype=torch.int32)

    def route():
        values, ids = torch.topk(torch.softmax(x @ w_router, 1), top_k)
        flat = ids.flatten()
        order = torch.argsort(flat, stable=True)
        counts = torch.zeros(experts, device="cuda", dtype=torch.int32).scatter_add_(0, flat, ones)
        return values.flatten(), order, counts

    def networks(rows, product):
        up = product(rows, weights[0])
        if gated:
            return product(torch.nn.functional.silu(up) * product(rows, weights[1]), weights[2])
        return product(torch.nn.functional.gelu(up, approximate="tanh"), weights[1])

    _, _, counts = route()
    parts = counts.tolist()

    def by_loop(rows, w):
        out = torch.empty(rows.shape[0], w.shape[2], **kind)
        begin = 0
        for expert, count in enumerate(parts):
            if count:
                torch.mm(rows[begin:begin + count], w[expert], out=out[begin:begin + count])
            begin += count
        return out

    def layer(grouped):
        values, order, counts = route()
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        product = (lambda rows, w: torch._grouped_mm(rows, w, offs=ends)) if grouped else by_loop
        token = order // top_k
        out = networks(x[token], product) * values[order].unsqueeze(1)
        return torch.zeros(tokens, hidden, **kind).index_add_(0, token, out)

    def timed(grouped):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            layer(grouped)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                layer(grouped)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            times = []
            for turn in range(30):
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                if turn > 4:
                    times.append(begin.elapsed_time(end))
        return statistics.median(times)
    return timed(True), timed(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--experts", default="64,256")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--chunks", default="1", help="parts of the batch, a list")
    parser.add_argument("--seconds", type=float, default=150, help="begin no case after that many")
    args = parser.parse_args()
    import torch
    began = time.monotonic()
    print("| experts | layer | parts of the batch | side by side, ms | grouped, ms | dropless, ms | PyTorch grouped, ms | PyTorch by loop, ms |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for experts in map(int, args.experts.split(",")):
        for name, hidden, ffn, top_k, gated in (("1024 × 4096, 2 of them", 1024, 4096, 2, False), ("2048 × 768, gated, 8 of them", 2048, 768, 8, True)):
            set_to = sizes(args.tokens, hidden, ffn, top_k, gated, experts)
            options = [word for name, value in set_to.items() for word in ("--set", f"{name}={value}")]
            beside = None
            for chunks in args.chunks.split(","):
                if time.monotonic() - began > args.seconds:
                    return
                with tempfile.TemporaryDirectory() as folder:
                    mine = [ours(args.aorta, workload, (*options, *more), folder, chunks) for _, workload, more in FORMS]
                beside = beside or theirs(torch, **set_to)
                torch.cuda.empty_cache()
                cells = " | ".join(f"{value:.3f}" for value in (*mine, *beside))
                print(f"| {experts} | {name} | {chunks} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
