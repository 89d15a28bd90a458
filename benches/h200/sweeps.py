#!/usr/bin/env python3
"""`aorta suite attention-sweep` and `transformer-sweep` beside PyTorch eager and `torch.compile`, on the same device in one run.

    python3 benches/h200/sweeps.py attention --aorta target/release/aorta --folder OUT [--only TEXT …]

Runs the suite's cases whose name contains a text of `--only`, writes the suite's CSV, then runs PyTorch in the sizes of the
CSV's rows, and writes `torch_NAME.csv` with the same columns. Both measure in bf16: aorta's vanilla mode launches each operation
at the host's pace, its compiled mode is `--fuse --launch graph`; PyTorch's are eager and `torch.compile` in its default
mode, timed between two events, the device idle before each iteration. PyTorch's attention is written as three operations, as
aorta's `naive` form; its transformer is that of `workloads/models/transformer.aorta`: rotary positions, RMS norms, a gated
network, `scaled_dot_product_attention`, AdamW with masters in f32. Speed is PyTorch's time over aorta's.

Several processes compile PyTorch's functions ahead into a shared cache. `--limit-s N` begins no further case after N seconds.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WARMUP, TRIALS, BUDGET_S = 3, 20, 0.5
SIZES = {"small": (12, 768, 12, 3072), "medium": (24, 1024, 16, 4096), "large": (36, 1280, 20, 5120), "xl": (48, 1600, 25, 6400),
         "2.7B": (32, 2560, 32, 10240)}
VOCABULARY = 10000


def timed(torch, step, prepare=None):
    """Mean and deviation in ms of a step between two events."""
    times, began = [], time.monotonic()
    for trial in range(WARMUP + TRIALS):
        if prepare:
            prepare()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        if trial >= WARMUP:
            times.append(begin.elapsed_time(end))
            if time.monotonic() - began > BUDGET_S and len(times) >= 5:
                break
    return statistics.fmean(times), statistics.pstdev(times)


def attention(torch, row, compiled):
    batch, seq, width = int(row["batch_size"]), int(row["seq_len"]), int(row["d_model"])

    def forward(q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) * (1 / math.sqrt(width)), dim=-1) @ v

    if compiled:
        torch._dynamo.reset()
        forward = torch.compile(forward, dynamic=False)
    q, k, v = (torch.randn(batch, seq, width, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dy = torch.randn_like(q)
    torch.cuda.reset_peak_memory_stats()
    result = {}
    found = []

    def ahead():
        found[:] = [forward(q, k, v)]
        q.grad = k.grad = v.grad = None

    result["forward_mean_ms"], result["forward_std_ms"] = timed(torch, lambda: forward(q, k, v))
    result["backward_mean_ms"], result["backward_std_ms"] = timed(torch, lambda: found.pop().backward(dy), ahead)
    result["total_mean_ms"] = result["forward_mean_ms"] + result["backward_mean_ms"]
    result["peak_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return result


def transformer(torch, size, context, compiled):
    """The steps of a model by name, each a function of nothing."""
    functional = torch.nn.functional
    layers, hidden, heads, ffn = SIZES[size]

    def parameter(*dims):
        return torch.nn.Parameter(torch.randn(dims, device="cuda", dtype=torch.bfloat16) * 0.02)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = parameter(hidden), parameter(hidden)
            self.qkv, self.out = parameter(3 * hidden, hidden), parameter(hidden, hidden)
            self.gate, self.up, self.down = parameter(ffn, hidden), parameter(ffn, hidden), parameter(hidden, ffn)

        def forward(self, x, cos, sin):
            batch, seq, _ = x.shape
            n = functional.rms_norm(x, [hidden], self.norm_1, 1e-6)
            q, k, v = functional.linear(n, self.qkv).view(batch, seq, 3, heads, -1).permute(2, 0, 3, 1, 4)

            def rope(t):
                a, b = t.chunk(2, dim=-1)
                return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(t.dtype)

            seen = functional.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
            x = x + functional.linear(seen.transpose(1, 2).reshape(batch, seq, hidden), self.out)
            n = functional.rms_norm(x, [hidden], self.norm_2, 1e-6)
            return x + functional.linear(functional.silu(functional.linear(n, self.gate)) * functional.linear(n, self.up), self.down)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.norm, self.head = parameter(VOCABULARY, hidden), parameter(hidden), parameter(VOCABULARY, hidden)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, ids, targets, cos, sin):
            x = functional.embedding(ids, self.words)
            for layer in self.layers:
                x = layer(x, cos, sin)
            n = functional.rms_norm(x, [hidden], self.norm, 1e-6)
            return functional.cross_entropy(functional.linear(n, self.head).flatten(0, 1), targets.flatten())

    model = Model()
    ids = torch.randint(0, VOCABULARY, (4, context), device="cuda")
    angle = torch.arange(context, device="cuda")[:, None] * torch.exp(torch.arange(hidden // heads // 2, device="cuda")
                                                                      * (-2 * math.log(1e4) / (hidden / heads)))
    cos, sin = angle.cos(), angle.sin()
    if compiled:
        torch._dynamo.reset()
        # One layer is compiled, and serves all.
        for layer in model.layers:
            layer.compile(dynamic=False)
    masters = []

    def forward():
        with torch.no_grad():
            model(ids, ids, cos, sin)

    def both():
        model.zero_grad(set_to_none=True)
        model(ids, ids, cos, sin).backward()

    def full():
        both()
        parameters = list(model.parameters())
        if not masters:
            masters.extend(p.detach().float() for p in parameters)
            full.optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, fused=True)
        for master, p in zip(masters, parameters):
            master.grad = None
        grads = [p.grad.float() for p in parameters]
        for master, grad in zip(masters, grads):
            master.grad = grad
        full.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)

    return {"forward": forward, "fwd_bwd": both, "full_step": full}


def compile_one(kind, key):
    """Compiles a case, so that its code lies in the shared cache. The message of a failure, or None."""
    import torch
    try:
        if kind == "attention":
            attention(torch, key, True)
        else:
            steps = transformer(torch, *key, True)
            steps["forward"]()
            steps["fwd_bwd"]()
            torch.cuda.synchronize()
    except Exception as error:
        return f"{key}: {str(error).splitlines()[0][:200]}"


def ahead(kind, keys, processes):
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for failure in pool.map(compile_one, [kind] * len(keys), keys):
            if failure:
                print(f"not compiled: {failure}", file=sys.stderr, flush=True)


def attempt(torch, action):
    """The result of an action; None where memory does not suffice."""
    try:
        return action()
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def text(value):
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def write(path, columns, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({name: text(row.get(name)) for name in columns} for row in rows)


def suite(args, name, path):
    """Runs the suite's cases, writes their CSV and returns its rows."""
    record, rows = args.folder / f"{name}.jsonl", []
    for only in args.only or [""]:
        path.unlink(missing_ok=True)
        command = [args.aorta, "suite", name, "--backend", args.backend, "--json", str(record), "--csv", str(path),
                   *(["--resume"] if record.exists() else []), *(["--only", only] if only else []), *args.options.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        if not path.exists():
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        print(done.stdout[-6000:], flush=True)
        rows += csv.DictReader(path.open())
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["attention", "transformer"])
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--options", default="", help="further options of `aorta suite`")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--aorta-only", action="store_true")
    args = parser.parse_args()
    began = time.monotonic()
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / f"{args.kind}.csv"
    rows = suite(args, f"{args.kind}-sweep", path)
    print(f"aorta: {len(rows)} rows after {time.monotonic() - began:.0f} s", flush=True)
    if args.aorta_only:
        return
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    columns = list(rows[0])
    results, ratios = [], {}
    over = lambda: time.monotonic() - began > args.limit_s
    if args.kind == "attention":
        keys = [row for row in rows if row["compiled"] == "True"]
        ahead(args.kind, keys, args.processes)
        print(f"compiled {len(keys)} after {time.monotonic() - began:.0f} s", flush=True)
        import torch
        for row in rows:
            if over():
                break
            found = attempt(torch, lambda: attention(torch, row, row["compiled"] == "True"))
            size = {name: row[name] for name in ("batch_size", "seq_len", "d_model", "compiled")}
            results.append({**size, **(found or {}), "status": "success" if found else "OOM"})
            if found and row["status"] == "success":
                for part in ("forward", "backward"):
                    ratio = found[f"{part}_mean_ms"] / float(row[f"{part}_mean_ms"])
                    ratios.setdefault((part, row["compiled"]), []).append((ratio, f"d_model {row['d_model']}, seq {row['seq_len']}"))
            write(args.folder / "torch_attention.csv", columns, results)
    else:
        keys = [(row["model_size"], int(row["context_length"])) for row in rows]
        ahead(args.kind, keys, args.processes)
        print(f"compiled {len(keys)} after {time.monotonic() - began:.0f} s", flush=True)
        import torch
        for row, key in zip(rows, keys):
            result = {name: row[name] for name in ("model_size", "context_length", "num_params", "num_params_millions")}
            for mode in ("vanilla", "compiled"):
                if over():
                    break
                steps = attempt(torch, lambda: transformer(torch, *key, mode == "compiled"))
                for name in ("forward", "fwd_bwd", "full_step"):
                    found = attempt(torch, lambda: timed(torch, steps[name])[0]) if steps else None
                    result[f"{name}_{mode}_ms"] = found
                    if found and row[f"{name}_{mode}_ms"]:
                        ratio = found / float(row[f"{name}_{mode}_ms"])
                        ratios.setdefault((name, mode), []).append((ratio, f"{key[0]}, {key[1]}"))
                        print(f"{key[0]}, {key[1]}, {name}, {mode}: PyTorch {found:.3f} ms, aorta "
                              f"{float(row[f'{name}_{mode}_ms']):.3f} ms, {ratio:.2f}", flush=True)
                del steps
                torch.cuda.empty_cache()
            for name in ("forward", "fwd_bwd", "full_step"):
                pair = [result.get(f"{name}_{mode}_ms") for mode in ("vanilla", "compiled")]
                result[f"{name}_speedup"] = pair[0] / pair[1] if all(pair) else None
            results.append(result)
            write(args.folder / "torch_transformer.csv", columns, results)
    for (part, mode), all_of in ratios.items():
        worst = min(all_of)
        print(f"{part}, {mode}: speed beside PyTorch's median {statistics.median(ratio for ratio, _ in all_of):.2f}, worst "
              f"{worst[0]:.2f} ({worst[1]}), at least 1.0 in {sum(ratio >= 1 for ratio, _ in all_of)} of {len(all_of)}")
    print(f"done after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
