#!/usr/bin/env python3
"""`aorta suite attention-sweep` and `transformer-sweep` beside PyTorch eager and `torch.compile`, on the same device in one run.

    python3 benches/h200/sweeps.py attention --aorta target/release/aorta --folder OUT [--only TEXT …]

Runs the suite's cases whose name contains a text of `--only`, writes the suite's CSV, then runs PyTorch in the sizes of the
CSV's rows, and writes `torch_NAME.csv` with the same columns. Both measure in bf16: aorta's vanilla mode launches each operation
at the host's pace, its compiled mode is `--fuse --launch graph`; PyTorch's are eager and `torch.compile` in its default
mode, timed between two events, the device idle before each iteration. PyTorch's attention is written as three operations, as
aorta's `naive` form; its transformer is that of `workloads/models/transformer.aorta`: rotary positions, RMS norms, a gated
network, `scaled_dot_product_attention`, AdamW with masters in f32. Speed is PyTorch's time over aorta's.

PyTorch's times of transformers are medians, which other processes on the host disturb least. aorta and PyTorch alternate by
size, in the order of `--only`; `--modes compiled` leaves out the eager runs.

Several processes compile PyTorch's functions ahead into a shared cache; `--compile-only` does nothing else, for a run with
`--processes 0` and the same `TORCHINDUCTOR_CACHE_DIR` that follows. `--limit-s N` begins no further case after N seconds.
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
    """Times in ms of a step between two events."""
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
    return times


def mean_and_deviation(times):
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

    result["forward_mean_ms"], result["forward_std_ms"] = mean_and_deviation(timed(torch, lambda: forward(q, k, v)))
    times = timed(torch, lambda: found.pop().backward(dy), ahead)
    result["backward_mean_ms"], result["backward_std_ms"] = mean_and_deviation(times)
    result["total_mean_ms"] = result["forward_mean_ms"] + result["backward_mean_ms"]
    result["peak_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return result


def transformer(torch, size, context, compiled, only_layers=None):
    """The steps of a model by name, each a function of nothing."""
    functional = torch.nn.functional
    layers, hidden, heads, ffn = SIZES[size]
    layers = only_layers or layers

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
            # All layers share the code of one.
            steps = transformer(torch, *key, True, 1)
            steps["forward"]()
            steps["fwd_bwd"]()
            torch.cuda.synchronize()
    except Exception as error:
        return f"{key}: {str(error).splitlines()[0][:200]}"


def ahead(kind, keys, processes):
    if not processes:
        return
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


def suite(args, name, path, filters):
    """Runs the suite's cases whose name contains one of the filters; returns the rows of its CSV, merged by size."""
    record, rows = args.folder / f"{name}.jsonl", {}
    for only in filters:
        path.unlink(missing_ok=True)
        command = [args.aorta, "suite", name, "--backend", args.backend, "--json", str(record), "--csv", str(path),
                   *(["--resume"] if record.exists() else []), *(["--only", only] if only else []), *args.options.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        if not path.exists():
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        if args.print_suite:
            print(done.stdout[-6000:], flush=True)
        for row in csv.DictReader(path.open()):
            key = tuple(row.get(column) for column in ("model_size", "context_length", "d_model", "seq_len", "compiled"))
            rows[key] = {**rows.get(key, {}), **{name: value for name, value in row.items() if value or name not in rows.get(key, {})}}
    return list(rows.values())


def attention_sweep(args, over, ratios):
    path = args.folder / "attention.csv"
    rows = suite(args, "attention-sweep", path, args.only or [""])
    columns = list(rows[0])
    write(path, columns, rows)
    print(f"aorta: {len(rows)} rows", flush=True)
    if args.aorta_only:
        return
    keys = [row for row in rows if row["compiled"] == "True"]
    ahead(args.kind, keys, args.processes)
    print(f"compiled {len(keys)}", flush=True)
    import torch
    results = []
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
                print(f"d_model {row['d_model']}, seq {row['seq_len']}, compiled {row['compiled']}, {part}: PyTorch "
                      f"{found[f'{part}_mean_ms']:.3f} ms, aorta {float(row[f'{part}_mean_ms']):.3f} ms, {ratio:.2f}", flush=True)
        write(args.folder / "torch_attention.csv", columns, results)


def transformer_sweep(args, over, ratios):
    named = {f"model_size={size}, context_length={context},": (size, context) for size in SIZES for context in (128, 256, 512, 1024)}
    keys = list(dict.fromkeys(key for only in args.only or [""] for name, key in named.items() if only in name))
    if not args.aorta_only:
        ahead(args.kind, keys, args.processes)
        print(f"compiled {len(keys)}", flush=True)
        if args.compile_only:
            return
        import torch
    passes, rows, results = ("forward", "fwd_bwd", "full_step"), [], []
    for key in keys:
        if over():
            break
        name = f"model_size={key[0]}, context_length={key[1]},"
        each = [f"{name} pass={step}, mode={mode}" for step in passes for mode in args.modes]
        [row] = suite(args, "transformer-sweep", args.folder / "transformer.csv", each if len(args.modes) < 2 else [name])
        rows.append(row)
        columns = list(row)
        write(args.folder / "transformer.csv", columns, rows)
        if args.aorta_only:
            continue
        result = {name: row[name] for name in ("model_size", "context_length", "num_params", "num_params_millions")}
        for mode in args.modes:
            if over():
                break
            steps = attempt(torch, lambda: transformer(torch, *key, mode == "compiled"))
            for name in passes:
                found = attempt(torch, lambda: statistics.median(timed(torch, steps[name]))) if steps else None
                result[f"{name}_{mode}_ms"] = found
                if found and row[f"{name}_{mode}_ms"]:
                    ratio = found / float(row[f"{name}_{mode}_ms"])
                    ratios.setdefault((name, mode), []).append((ratio, f"{key[0]}, {key[1]}"))
                    print(f"{key[0]}, {key[1]}, {name}, {mode}: PyTorch {found:.3f} ms, aorta "
                          f"{float(row[f'{name}_{mode}_ms']):.3f} ms, {ratio:.2f}", flush=True)
            del steps
            torch.cuda.empty_cache()
        for name in passes:
            pair = [result.get(f"{name}_{mode}_ms") for mode in ("vanilla", "compiled")]
            result[f"{name}_speedup"] = pair[0] / pair[1] if all(pair) else None
        results.append(result)
        write(args.folder / "torch_transformer.csv", columns, results)


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
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--modes", nargs="+", choices=["vanilla", "compiled"], default=["vanilla", "compiled"])
    parser.add_argument("--print-suite", action="store_true", help="print the suite's own page")
    args = parser.parse_args()
    began = time.monotonic()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    ratios = {}
    {"attention": attention_sweep, "transformer": transformer_sweep}[args.kind](args, lambda: time.monotonic() - began > args.limit_s, ratios)
    for (part, mode), all_of in ratios.items():
        worst = min(all_of)
        print(f"{part}, {mode}: speed beside PyTorch's median {statistics.median(ratio for ratio, _ in all_of):.2f}, worst "
              f"{worst[0]:.2f} ({worst[1]}), at least 1.0 in {sum(ratio >= 1 for ratio, _ in all_of)} of {len(all_of)}")
    print(f"done after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
