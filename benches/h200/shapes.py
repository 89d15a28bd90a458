#!/usr/bin/env python3
"""Operations beside PyTorch on shapes drawn by seed: odd sizes, primes, broadcasts, gaps, every type.

    python3 benches/h200/shapes.py --aorta target/release/aorta --seed 1 [--operations map,softmax] [--cases 60]

For each operation one workload file is written in which each case is a slot of the cycle: twenty calls, run as a graph of
their own. PyTorch runs twenty calls of the same shapes in a CUDA graph. Both begin with cold caches and are timed by events
around the graph, in the same minute; the host is ahead of the device, so that no launch of a graph is waited for. Beside
them stand the limit (bytes over the bandwidth of a large copy, measured first) and the simulator's time. With speed =
PyTorch's time / aorta's time the goal for each operation is: median at least 1.1 or 0.85 of the bandwidth, worst tenth at
least 0.95, nothing below 0.67. A case counts as fast enough if it reaches 0.85 of the bandwidth. A case that PyTorch refuses
has no speed.

`--csv FILE` keeps every case with its program, so that later versions can be simulated beside it.

`--verify N` compares the results of N cases of each operation, below 16 MiB, with the CPU's. `--compile N` adds
`torch.compile` in N cases of each operation; these are compiled ahead by several processes, which share a cache of code.

`--operations gradients` draws gradients of any operations, and `grad_softmax,grad_norms` those of some (drawn_gradients.py). They stand
beside PyTorch's autograd: one call of the operation and twenty of its gradient on both sides, so that a twentieth of the operation's own
time is part of a call. `--verify N` compares N cases with autograd in double precision as well.

`--operations elementwise_chain,rowwise_chain,epilogue_chain` draws chains of operations, which aorta runs with `--fuse`: their
goal is a median of at least 1.0 beside `torch.compile`.
"""
import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import measured
from drawn import DRAWN
from drawn_chains import CHAINS
from drawn_gradients import GRADIENTS
from drawn_case import FLOATS, Case, count

CALLS = 20

# Bytes that a case moves from which on memory limits it, and no cache helps.
LARGE = 64 << 20

# Memory that is written to flush the caches, once made.
FLUSHED = []

# Microseconds of a call beyond which one call is measured instead of a graph of calls: atomics on one address take seconds.
LONG = 20e3


def renamed(case, number, text):
    for name in sorted(case.buffers, key=len, reverse=True):
        text = re.sub(rf"\b{name}\b", f"{name}_{number}", text)
    return text


def workload(cases, calls=CALLS):
    """A file in which each case is a slot; the first slot makes indices."""
    lines = ["stream s"]
    for number, case in enumerate(cases):
        for name, (dtype, dims) in case.buffers.items():
            # Indices of rows and columns; a residual of that name has the usual contents, since `f16` holds no large numbers.
            initial = " = iota" if name in ("r", "c") and dtype not in FLOATS else ""
            lines.append(f"buffer {name}_{number}: {dtype}{dims}{initial}")
    lines.append(f"step {{\n  on s {{\n    if iteration % {len(cases) + 1} == 0 {{\n      nop()")
    lines += [f"      {renamed(case, number, case.setup)}" for number, case in enumerate(cases) if case.setup]
    lines.append("    }")
    for number, case in enumerate(cases):
        lines.append(f"    if iteration % {len(cases) + 1} == {number + 1} {{ {renamed(case, number, case.forward)}\n"
                     f"      for call in 0..{calls} {{ {renamed(case, number, case.call)} }} }}")
    lines.append("  }\n}")
    return "\n".join(lines) + "\n"


def ours(args, path, cases, backend, options=()):
    """Microseconds of a call of each case."""
    record = path.with_suffix(f".{backend}.json")
    rounds = 7 if backend == "cuda" else 1
    command = [args.aorta, "exec", str(path), "--backend", backend, "--launch", "graph", "--warmup", str(2 * (len(cases) + 1)),
               "--iterations", str(rounds * (len(cases) + 1)), "--config", "observed_iterations=0", "--timeout", "120s",
               "--cache", "cold", "--json", str(record), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    slots = json.loads(record.read_text())["variants"][0]["time"]["slots"]
    return [slot["p50_ns"] / 1e3 / CALLS if slot.get("p50_ns") is not None else math.nan for slot in slots[1:]]


def verified(args, path, cases):
    path.write_text(workload(cases, 1))
    command = [args.aorta, "exec", str(path), "--backend", "cuda", "--launch", "graph", "--warmup", "0", "--iterations",
               str(len(cases) + 1), "--config", "observed_iterations=0", "--timeout", "120s", "--verify"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "verified" in line or "wrong" in line]
    return done.returncode, lines


def types_of(torch):
    return {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
            "i8": torch.int8, "u8": torch.uint8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def disagreements(args, path, cases, torch):
    """Gradients that differ from those of autograd in double precision from the same operands."""
    import numpy
    path.write_text(workload(cases, 1))
    with tempfile.TemporaryDirectory() as folder:
        command = [args.aorta, "exec", str(path), "--backend", "cuda", "--warmup", "0", "--iterations", str(len(cases) + 1), "--timeout", "120s",
                   "--config", "observed_iterations=0", "--outputs", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return [f"code {done.returncode}: {done.stderr[-300:]}"]
        files = {file.name.split(".")[0]: file for file in pathlib.Path(folder).rglob("*.npy")}
        lines = []
        for number, case in enumerate(cases):
            found = {}
            for name, (dtype, dims) in case.buffers.items():
                values = numpy.load(files[f"{name}_{number}"])
                values = torch.from_numpy(values.view("i2")).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(values)
                values = values.cuda().reshape(dims)
                found[name] = values.double() if dtype in FLOATS else values
            if not case.gradients:
                continue
            expected = case.torch(found, torch)()
            bound = 0.02 if any(dtype in ("bf16", "f16") for dtype, _ in case.buffers.values()) else 1e-4
            for name, value in zip(case.gradients, expected):
                value = torch.zeros_like(value) if name in case.zeros else value
                error = ((found[name] - value.reshape(found[name].shape)).norm() / value.norm().clamp_min(1e-30)).item()
                if not error < bound:
                    lines.append(f"{case.what}: {name} differs by {error:.1e}")
        return lines


def tensors(case, torch):
    types = types_of(torch)
    made = {}
    for name, (dtype, dims) in case.buffers.items():
        if name in ("r", "c"):
            made[name] = torch.arange(count(dims), device="cuda", dtype=torch.int32).reshape(dims)
        elif name == "i" and case.setup:
            expression = case.setup.removeprefix("map(").split(" -> ")[0]
            made[name] = eval(expression, {"exp": torch.exp, **made}).round().to(types[dtype])
        elif dtype in FLOATS:
            made[name] = torch.randn(dims, device="cuda", dtype=torch.float32).to(types[dtype])
        else:
            made[name] = torch.randint(0, 100, dims, device="cuda").to(types[dtype])
    return made


def theirs(case, torch, compiled=False):
    """Microseconds of a call in a graph of calls, which begins with cold caches, as aorta's does."""
    if not FLUSHED:
        FLUSHED.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    made = tensors(case, torch)
    stream = torch.cuda.Stream()
    # Gradients are computed on the stream of their operation.
    with torch.cuda.stream(stream):
        stream.wait_stream(torch.cuda.default_stream())
        body = case.torch(made, torch)
    if compiled:
        # Each case is compiled for its own shapes, not as one more shape of the case before.
        torch._dynamo.reset()
        body = torch.compile(body, dynamic=False)
    # The tensors were made on another stream.
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        body()
        begin.record()
        body()
        end.record()
    torch.cuda.synchronize()
    once = begin.elapsed_time(end) * 1e3
    if once > LONG:
        return once
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        if case.forward:
            body = case.torch(made, torch)
        for _ in range(CALLS):
            body()
    times = []
    for turn in range(9):
        FLUSHED[0].zero_()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn >= 2:
            times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    del graph
    return statistics.median(times)


def supported(case, torch):
    """Microseconds of a call as `theirs` measures them; NaN if PyTorch refuses the case, as cuBLAS does some 8-bit products."""
    try:
        return theirs(case, torch)
    except RuntimeError as error:
        print(f"PyTorch refuses {case.what}: {str(error).splitlines()[0][:200]}", file=sys.stderr, flush=True)
        return math.nan


def drawn_cases(seed, name, number):
    draw = random.Random(f"{seed} {name}")
    return [{**DRAWN, **CHAINS, **GRADIENTS}[name](draw) for _ in range(number)]


def compile_one(seed, name, number):
    """Compiles a case, so that its code lies in the shared cache. The message of a failure, or None."""
    import torch
    case = drawn_cases(seed, name, number + 1)[number]
    try:
        torch.compile(case.torch(tensors(case, torch), torch), dynamic=False)()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{name} {case.what}: {str(error).splitlines()[0][:200]}"
    finally:
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def compile_ahead(args, names):
    """Compiles the first cases of each operation side by side; returns those that PyTorch compiled."""
    done = set()
    with concurrent.futures.ProcessPoolExecutor(12, multiprocessing.get_context("spawn")) as pool:
        tasks = {(name, number): pool.submit(compile_one, args.seed, name, number)
                 for number in range(min(args.compile, args.cases)) for name in names if name not in GRADIENTS}
        for key, task in tasks.items():
            failure = task.result()
            if failure:
                print(f"not compiled: {failure}", file=sys.stderr)
            else:
                done.add(key)
    return done


def bandwidth(torch):
    """Bytes a microsecond that a copy of 1 GiB reads and writes."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(10):
        begin.record()
        y.copy_(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return 2 * x.numel() / min(times)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", default=",".join(DRAWN))
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--compile", type=int, default=5)
    parser.add_argument("--verify", type=int, default=0, help="compare so many cases below 16 MiB with the CPU")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--csv", type=pathlib.Path, help="write each case with its program and times, as simulated_cases.py reads them")
    parser.add_argument("--simulated", action="store_true", help="only write the files and simulate them: needs no GPU")
    parser.add_argument("--seconds", type=float, default=540, help="begin no operation after that many")
    args = parser.parse_args()
    began = time.monotonic()
    torch, peak, device, profile, rows = None, math.nan, "", "h200", []
    if not args.simulated:
        import torch
        peak = bandwidth(torch)
        device = next((name for name in ("H100", "H200") if name in torch.cuda.get_device_name()), torch.cuda.get_device_name())
        profile = device.lower() if device in ("H100", "H200") else profile
        print(f"{torch.cuda.get_device_name()}: a copy of 1 GiB moves {peak / 1e6:.2f} TB/s; PyTorch {torch.__version__}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        compiles = compile_ahead(args, args.operations.split(",")) if args.compile else set()
        print(f"compiled {len(compiles)} cases ahead in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    details = ["| operation | case | PyTorch, µs | compiled, µs | aorta, µs | speed | of the bandwidth | simulated, µs |",
               "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    summary = ["| operation | cases | median speed | worst tenth | worst | beside compiled | median share | large below 0.85 | simulated over measured | wrong |",
               "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.operations.split(","):
            if time.monotonic() - began > args.seconds:
                summary.append(f"| {name} | not reached | | | | | | | | |")
                continue
            cases = drawn_cases(args.seed, name, args.cases)
            path = pathlib.Path(folder) / f"{name}.aorta"
            path.write_text(workload(cases))
            options = ["--fuse"] if name in CHAINS else []
            simulated = ours(args, path, cases, "sim", [*options, "--config", f"profile={profile}"])
            if args.simulated:
                print(f"{name}: {len(cases)} cases, {min(simulated):.2f} to {max(simulated):.2f} µs simulated")
                continue
            mine = ours(args, path, cases, "cuda", options)
            print(f"{name}: measured after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            speeds, shares, ratios, beside, large = [], [], [], [], 0
            for number, case in enumerate(cases):
                eager = supported(case, torch)
                compiled = theirs(case, torch, True) if (name, number) in compiles else math.nan
                torch.cuda.empty_cache()
                if not math.isnan(compiled):
                    beside.append(compiled / mine[number])
                speed, share = eager / mine[number], case.bytes / mine[number] / peak
                # What a cache serves has no share of the memory's bandwidth.
                if case.bytes >= LARGE:
                    shares.append(share)
                    large += share < 0.85
                reached = [] if math.isnan(speed) else [speed]
                reached += [share / 0.85] if case.bytes >= LARGE else []
                speeds += [max(reached)] if reached else []
                ratios.append(simulated[number] / mine[number])
                # A program of merged operations is another than that of the row.
                if name not in CHAINS and name not in GRADIENTS and not math.isnan(mine[number]):
                    rows.append(measured.row(case, name, mine[number], page=f"seed {args.seed}", device=device, cache="cold", calls=CALLS,
                                             pytorch_us="" if math.isnan(eager) else eager, compiled_us="" if math.isnan(compiled) else compiled))
                details.append(f"| {name} | {case.what} | {eager:.2f} | {compiled:.2f} | {mine[number]:.2f} | {speed:.2f} | {share:.2f} | "
                               f"{simulated[number]:.2f} |")
                if args.markdown:
                    args.markdown.write_text("\n".join(summary + ["", *details]) + "\n")
            wrong = "–"
            if args.verify:
                small = sorted((case for case in cases if case.total() < 16 << 20), key=Case.total)
                few = small[::max(1, len(small) // args.verify)][:args.verify]
                code, lines = verified(args, path.with_suffix(".verify.aorta"), few)
                wrong = "no" if code == 0 else f"code {code}: {' '.join(lines)[:300]}"
                if name in GRADIENTS:
                    lines = disagreements(args, path.with_suffix(".autograd.aorta"), few, torch)
                    wrong = "; ".join(lines)[:300] if lines else wrong
            summary.append(f"| {name} | {len(cases)} | {statistics.median(speeds):.2f} | {quantile(speeds, 0.1):.2f} | {min(speeds):.2f} | "
                           f"{statistics.median(beside) if beside else math.nan:.2f} | "
                           f"{statistics.median(shares) if shares else math.nan:.2f} | {large} of {len(shares)} | "
                           f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {wrong} |")
            print(summary[-1], flush=True)
            if args.csv:
                measured.write(args.csv, rows)
            if args.markdown:
                args.markdown.write_text("\n".join(summary + ["", *details]) + "\n")
    print("\n".join(summary))


if __name__ == "__main__":
    main()
