#!/usr/bin/env python3
"""The queue workloads beside the Python toolkit that they come from, AORTA 0.3.0, in one run.

    python3 -m pip download --no-deps amd-aorta==0.3.0
    python3 benches/h200/aorta_python.py --aorta target/release/aorta --wheel amd_aorta-0.3.0-py3-none-any.whl

Python has to have PyTorch with CUDA, and click. The wheel is installed into a folder of its own, nothing is fetched.
Without --wheel, the installed toolkit is taken. --full takes the toolkit's own 10 and 100 iterations everywhere,
which lasts some minutes more; otherwise both sides take the same smaller numbers. --markdown FILE writes the tables
too. --check compares what both issue and times nothing. --seconds N begins no further round that would end later.
--folder has the workload files, if not those of the program.

What is compared: `python -m aorta.hw_queue_eval run NAME --streams N` with `aorta exec NAME --preset aorta --streams
N` as streams and as a graph, for each NAME and N, ours and theirs in turn, for some rounds. Each run is a process of
its own; theirs are forked from one that has imported PyTorch and has not touched the GPU, which only saves their
start. N is the number of streams that the toolkit recommends for NAME, unless --streams says otherwise. Three of its
workloads end with an error before they are through: activation_ckpt, zero_offload and torch_compile.

- Before anything is timed, one iteration of theirs is taken apart: each PyTorch call with its stream, types and
  shapes, in the order of issue. For the workloads marked `exact` it has to be ours, operation by operation; what
  differs is printed, and the exit code is 1. For the others the numbers of calls and operations are printed: ours
  has one operation where PyTorch has several calls or the other way round. Their products and convolutions are
  compared by size, and `tests/toolkit_calls.rs` holds ours with their streams. PyTorch's profiler counts the
  kernels that these calls launch.
- Theirs takes the time of an iteration between two events on an idle stream, one recorded by the host before it
  issues the first kernel, one after it has waited for every stream in turn: issuing and waiting are inside. Its
  like of ours is the host-paced time: from an event before the first kernel to one behind the last of all streams,
  without the gate that holds an iteration until the host has issued it. With `sync: iteration` and `in_flight=1`
  the host issues an iteration when the one before is complete, as theirs does, so that issuing is inside too; the
  host's waiting is not. Ratios compare these two. The time at the gate, which is the device's alone, has a column
  and no ratio: theirs has nothing like it. A graph is issued by one call. Neither side times single operations.
- Throughput is in the toolkit's unit: its own number of operations of an iteration, over the mean time of one.
- f32 products are f32 on both sides. The toolkit leaves PyTorch's matmul precision at `highest`; `compute: auto`
  never rounds. Variables that would override that are taken out of the environment. Convolutions round to tf32 on
  both sides, which is PyTorch's default.
- One GPU: the toolkit deals its streams over all GPUs that it sees, so both sides see one.
"""
import argparse
import collections
import importlib.metadata
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

# Streams that the toolkit recommends, and warm-up and measured iterations: enough to tell one per cent, few enough that
# two rounds take about three minutes. `exact`: both issue the same calls.
CASES = {
    "hetero_kernels": (8, (5, 40), "exact"),
    "tiny_kernel_stress": (16, (3, 20), "exact"),
    "large_gemm_only": (4, (1, 5), "exact"),
    "graph_subgraphs": (8, (10, 100), ""),
    "fsdp_tp": (10, (5, 40), ""),
    "moe": (16, (5, 40), ""),
    "grad_accum": (6, (10, 60), ""),
    "comms_compute_overlap": (4, (5, 40), ""),
    "speculative_decode": (6, (5, 40), ""),
    "continuous_batch": (8, (10, 60), ""),
    "rag_pipeline": (8, (10, 60), ""),
    "async_dataload": (6, (10, 60), ""),
}
# Files without a parameter `streams`: they have as many as the toolkit uses.
FIXED = ("fsdp_tp", "speculative_decode", "continuous_batch", "async_dataload")
OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
TYPES = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float64": "f64"}
# PyTorch's calls as operations of ours.
OPERATIONS = {"aten.mm.default": "gemm", "aten.mul.Tensor": "map", "aten.add.Tensor": "map", "aten.abs.default": "map",
              "aten.clamp.default": "map"}


# --- Inside the process that has imported PyTorch ----------------------------------------------------------------

def serve():
    """Forks a process for each line of the input, and says how it ended."""
    import aorta.hw_queue_eval.cli as toolkit

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if "run" in job:
                toolkit.cli(["run", *job["run"]])
            else:
                facts = inspect(job["inspect"], job["streams"])
                pathlib.Path(job["output"]).write_text(json.dumps(facts))
                sys.exit(0)
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def inspect(name, count):
    """One iteration of a workload of theirs, call by call, and the kernels that it launches."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from aorta.hw_queue_eval.workloads.registry import get_workload
    from aorta.utils import create_streams

    workload = get_workload(name)
    streams = create_streams(count, "cuda:0")
    place = {stream.cuda_stream: number for number, stream in enumerate(streams)}
    workload.setup(count, "cuda:0")
    calls = []

    def described(tensors):
        shapes = (t for t in tensors if isinstance(t, torch.Tensor))
        return ", ".join(f"{TYPES.get(str(t.dtype), t.dtype)}{list(t.shape)}" for t in shapes)

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            operation = OPERATIONS.get(str(function), str(function))
            stream = place.get(torch.cuda.current_stream().cuda_stream)
            calls.append([stream, f"{operation} {described(args)} -> {described([result])}"])
            return result

    with Note():
        workload.run_iteration(streams)
    torch.cuda.synchronize()
    facts = {
        "calls": calls,
        "distinct_streams": len(place),
        "priorities": sorted({stream.priority for stream in streams}),
        "precision": torch.get_float32_matmul_precision(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "about": f"AORTA {importlib.metadata.version('amd-aorta')} on PyTorch {torch.__version__}",
    }
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            workload.run_iteration(streams)
            torch.cuda.synchronize()
        on_device = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        facts["kernels"] = collections.Counter(on_device)
    except Exception as why:  # The profiler needs more of a machine than the toolkit does.
        facts["kernels"], facts["why"] = None, str(why)
    return facts


class Theirs:
    """The toolkit, behind the process that forks its runs."""

    def __init__(self, folder, environment):
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, __file__, "--serve"], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, job, output):
        log = self.folder / "theirs.log"
        self.process.stdin.write(json.dumps({**job, "log": str(log), "output": str(output)}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "0":
            raise SystemExit(f"the toolkit failed ({answer or 'it did not start'}) at {job}\n"
                             f"{log.read_text() if log.exists() else ''}")
        return json.loads(output.read_text())

    def inspect(self, name, streams):
        return self.ask({"inspect": name, "streams": streams}, self.folder / "inspected.json")

    def run(self, name, streams, counts):
        output = self.folder / "theirs.json"
        warmup, iterations = counts
        return self.ask({"run": [name, "--streams", str(streams), "--warmup", str(warmup), "--iterations",
                                 str(iterations), "--output", str(output)]}, output)


# --- Ours, and the comparison ------------------------------------------------------------------------------------

def ours(args, name, streams, counts, folder, environment):
    record = folder / "ours.json"
    warmup, iterations = counts
    file = next(args.folder.glob(f"*/{name}.aorta")) if args.folder else name
    parts = ["--streams", str(streams)] if name not in FIXED else []
    command = [args.aorta, "exec", str(file), "--preset", "aorta", *parts, "--backend", args.backend, "--launch",
               "both", "--warmup", str(warmup), "--iterations", str(iterations), "--json", str(record), "--sync",
               "iteration", "--config", "in_flight=1", "--config", "observed_iterations=0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())


def differences(record, inspected):
    """What differs between an iteration of ours and one of theirs; nothing where both issue the same."""
    mine = [[operation["lane"], f"{operation['operation']} {operation['shape']}"]
            for operation in record["variants"][0]["ranks"][0]["operations"]]
    found = []
    if len(mine) != len(inspected["calls"]):
        found.append(f"operations: ours {len(mine)}, theirs {len(inspected['calls'])}")
    pairs = list(zip(mine, inspected["calls"]))
    wrong = [number for number, (a, b) in enumerate(pairs) if a != b]
    if wrong:
        (stream, text), (their_stream, their_text) = pairs[wrong[0]]
        found.append(f"{len(wrong)} operations differ, first number {wrong[0]}: ours on stream {stream}, {text}; "
                     f"theirs on stream {their_stream}, {their_text}")
    lanes = record["program"]["lanes"]
    if len(lanes) != inspected["distinct_streams"]:
        found.append(f"streams: ours {len(lanes)}, theirs {inspected['distinct_streams']}")
    if inspected["priorities"] != [0] or any(lane["priority"] != "normal" for lane in lanes):
        found.append(f"priorities: ours {sorted({lane['priority'] for lane in lanes})}, "
                     f"theirs {inspected['priorities']}")
    if record["program"]["waits"]:
        found.append(f"waits between streams: ours {record['program']['waits']}, theirs none")
    if inspected["tf32"] or inspected["precision"] != "highest":
        found.append(f"PyTorch's matmul precision is `{inspected['precision']}`")
    if record["workload"]["params"].get("compute", "auto") not in ("auto", "f32"):
        found.append(f"ours computes in {record['workload']['params']['compute']}")
    return found


class Side:
    """The samples of one side, in milliseconds, by round."""

    def __init__(self):
        self.rounds = []

    def add(self, samples):
        self.rounds.append(samples)

    @property
    def samples(self):
        return [sample for samples in self.rounds for sample in samples]

    @property
    def median(self):
        return statistics.median(self.samples)

    @property
    def mean(self):
        return statistics.fmean(self.samples)


def ratio(theirs, mine):
    """How many times as much ours does in the same time, and the range over the rounds."""
    if not mine.rounds:
        return "–"
    rounds = [statistics.fmean(a) / statistics.fmean(b) for a, b in zip(theirs.rounds, mine.rounds)]
    return f"{theirs.mean / mine.mean:.3g} × ({min(rounds):.3g} to {max(rounds):.3g})"


def their_products(calls):
    """Products and convolutions of theirs: how many there are of each size, whichever operand comes first."""
    products = collections.Counter()
    for _, text in calls:
        name, shapes = text.split(" ", 1)
        operands = [tuple(map(int, found.split(", "))) for found in re.findall(r"\[([\d, ]+)\]", shapes.split(" -> ")[0])]
        if name in ("gemm", "aten.mm.default", "aten.addmm.default", "aten.bmm.default"):
            left, right = operands[-2:]
            batch = [left[0]] if len(left) > 2 and left[0] > 1 else []
            products[(*batch, *sorted((left[-2], right[-1])), left[-1])] += 1
        elif name == "aten.convolution.default":
            products[("conv", *operands[1])] += 1
    return products


def our_products(record):
    """The same of ours."""
    products = collections.Counter()
    for operation in record["variants"][0]["ranks"][0]["operations"]:
        name, operands = operation["operation"], operation["shape"].split(" -> ")
        shapes = [tuple(map(int, found.split(", "))) for found in re.findall(r"\[([\d, ]+)\]", " ".join(operands))]
        if name == "conv":
            products[("conv", *shapes[1])] += 1
        elif name == "gemm":
            m, n, k = list(map(int, re.findall(r"\d+", operation["size"].rsplit(" ", 1)[0])))[-3:]
            batch = math.prod(shapes[-1]) // (m * n)
            products[(*([batch] if batch > 1 else []), *sorted((m, n)), k)] += 1
    return products


def issued(record):
    """Operations of an iteration of ours, without the waits that are written out."""
    operations = record["variants"][0]["ranks"][0]["operations"]
    return sum(operation["category"] != "marker" for operation in operations)


def host_paced(variant):
    """The samples of a variant without the gate. Where it could not be held, these are its headline."""
    return (variant.get("ungated") or variant["time"])["samples_ns"]


def shown(side, work):
    """Median, and throughput of the whole."""
    return f"{side.median:.3f} | {work / side.mean * 1e3:.4g}" if side.rounds else "– | –"


def compare(case, record, facts, counted, failures, notes):
    """Adds a row of the table of what both issue, and says what differs."""
    name, streams = case
    if CASES[name][2] == "exact":
        found = differences(record, facts)
        failures += [f"{name}, {streams} streams: {what}" for what in found]
        alike = "no" if found else "yes"
        notes += [f"{name}, {streams} streams: {count} × {kernel[:150]}"
                  for kernel, count in (facts["kernels"] or {}).items()]
    else:
        mine, others = our_products(record), their_products(facts["calls"])
        alike = f"{(mine & others).total()} of {others.total()} products"
        sides = [("theirs", others - mine), ("ours", mine - others)]
        notes += [f"{name}, {streams} streams: products of {whose} alone: {count} × {size}"
                  for whose, products in sides for size, count in products.items()]
    kernels = sum(facts["kernels"].values()) if facts["kernels"] else f"not counted: {facts.get('why')}"
    counted.append(f"| {name} | {streams} | {len(facts['calls'])} | {kernels} | {issued(record)} | {alike} |")


def measure(args, theirs, folder, environment):
    cases = [(name, streams) for name in args.workloads for streams in args.streams or [CASES[name][0]]]
    counted = ["| workload | streams | PyTorch calls | kernels that they launch | operations of ours | the same |",
               "| --- | ---: | ---: | ---: | ---: | --- |"]
    failures, notes, results = [], [], {case: None for case in cases}
    inspected = {case: theirs.inspect(*case) for case in cases}
    about = None
    started = time.monotonic()
    if args.check:
        for case in cases:
            record = ours(args, *case, (0, 1), folder, environment)
            compare(case, record, inspected[case], counted, failures, notes)
            about = about or (record["device"], record["aorta"], inspected[case]["about"])
    for number in range(0 if args.check else args.rounds):
        passed = time.monotonic() - started
        if number and args.seconds and passed + passed / number > args.seconds:
            print(f"no round after {number}: {passed:.0f} s have passed", flush=True)
            break
        for case in cases:
            name, streams = case
            counts = (10, 100) if args.full else CASES[name][1]
            record = ours(args, name, streams, counts, folder, environment)
            result = theirs.run(name, streams, counts)
            if number == 0:
                about = about or (record["device"], record["aorta"], inspected[case]["about"])
                compare(case, record, inspected[case], counted, failures, notes)
                # Its own number of operations of an iteration, which it does not print.
                work = result["throughput"] * result["total_time_ms"] / 1e3 / len(result["iteration_times_ms"])
                results[case] = {"unit": result["throughput_unit"], "work": work, "theirs": Side(), "stream": Side(),
                                 "gate": Side(), "graph": Side(), "issue": Side()}
            sides = results[case]
            sides["theirs"].add(result["iteration_times_ms"])
            for variant in record["variants"]:
                sides[variant["launch"]].add([sample / 1e6 for sample in host_paced(variant)])
                if variant["launch"] == "stream":
                    if variant.get("ungated"):
                        sides["gate"].add([sample / 1e6 for sample in variant["time"]["samples_ns"]])
                    sides["issue"].add([sample / 1e6 for sample in variant["issue"]["samples_ns"]])
            failures += [f"{name}, {streams} streams: {text}" for text in record["warnings"] if "no graph" in text]
            print(f"round {number + 1}, {name}, {streams} streams: theirs {sides['theirs'].median:.3f} ms, ours host-paced "
                  f"{sides['stream'].median:.3f} ms, as a graph {sides['graph'].median:.3f} ms", flush=True)
    return results, counted, failures, notes, about


def report(args, results, counted, failures, notes, about):
    device, version, toolkit = about
    facts = ", ".join(f"{key} {value}" for key, value in device["facts"].items())
    lines = [f"{device['name']} ({facts}); aorta {version}; {toolkit}; {args.rounds} rounds; "
             "warm-up and measured iterations: "
             + ", ".join(f"{name} {' and '.join(map(str, (10, 100) if args.full else CASES[name][1]))}"
                         for name in args.workloads) + ".", "",
             "| workload | streams | unit | AORTA, ms | rate | as streams, host-paced, ms | rate | over AORTA (by round) "
             "| host issues, ms | at the gate, ms | as a graph, ms | rate | over AORTA (by round) |",
             "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for (name, streams), sides in ((case, sides) for case, sides in results.items() if sides):
        theirs, work = sides["theirs"], sides["work"]
        issue, gate = (f"{sides[of].median:.3f}" if sides[of].rounds else "–" for of in ("issue", "gate"))
        lines.append(f"| {name} | {streams} | {sides['unit']} | {shown(theirs, work)} | "
                     f"{shown(sides['stream'], work)} | {ratio(theirs, sides['stream'])} | {issue} | {gate} | "
                     f"{shown(sides['graph'], work)} | {ratio(theirs, sides['graph'])} |")
    lines += ["", "Times are medians of an iteration, rates the work over the mean time.", "", *counted]
    lines += ["", "What differs, and their kernels in one iteration:", "", *(f"- {note}" for note in notes)] if notes else []
    lines += ["", *(f"DIFFERS: {failure}" for failure in failures)] if failures else []
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--wheel", type=pathlib.Path, help="the toolkit's wheel; without, what is installed")
    parser.add_argument("--workloads", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--streams", nargs="+", type=int, metavar="N", help="by default, what the toolkit recommends")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="compare what both issue, without timing")
    parser.add_argument("--seconds", type=float, help="no round begins that would end later")
    parser.add_argument("--folder", type=pathlib.Path, help="the workload files; by default those in the program")
    parser.add_argument("--full", action="store_true", help="the toolkit's own numbers of iterations, 10 and 100")
    parser.add_argument("--device", type=int, default=0, help="which of the visible GPUs")
    parser.add_argument("--backend", default="cuda", help="of ours")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the tables here too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve()
    started = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if key not in OVERRIDES}
    visible = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    environment["CUDA_VISIBLE_DEVICES"] = visible[args.device] if visible else str(args.device)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        theirs_environment = dict(environment)
        if args.wheel:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
                            "--target", str(folder / "toolkit"), str(args.wheel)], check=True)
            others = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
            theirs_environment["PYTHONPATH"] = os.pathsep.join([str(folder / "toolkit"), *others])
        theirs = Theirs(folder, theirs_environment)
        measured = measure(args, theirs, folder, environment)
        theirs.process.stdin.close()
        theirs.process.wait()
    text = report(args, *measured)
    print(text)
    print(f"{time.monotonic() - started:.0f} s")
    if args.markdown:
        args.markdown.write_text(text)
    return 1 if measured[2] else 0


if __name__ == "__main__":
    sys.exit(main())
