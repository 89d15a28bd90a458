#!/usr/bin/env python3
"""A/A: the same file measured again and again, in new processes. How often is it called different?

    python3 benches/h200/same.py --aorta target/release/aorta [--pairs 200] [--devices 0,1,2,3] [--markdown FILE]

201 runs are 200 pairs: each run is compared with the one before it, and called different when `aorta compare` says
`better` or `worse` of its median. Then runs are put together: the first five are a side, the next five the other, and so
on. On several devices the runs are shared out, and pairs are of one device. The columns before show how often the 95 %
intervals of the medians alone do not meet: they ask about the samples of one run, and what changes from process to
process (where memory lies, how fast the host is just then) is beyond them. The last columns show how far neighbours lie
apart. Then `aorta ab`, whose two processes take turns: each side is compared with itself.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

CASES = {
    "moe, as a graph": ["moe", "--launch", "graph"],
    "tiny kernels, as a graph": ["tiny_kernel_stress", "--preset", "tiny", "--launch", "graph"],
    "tiny kernels, as streams": ["tiny_kernel_stress", "--preset", "tiny", "--launch", "stream"],
}

# Runs of a side, where several are compared with several.
SIDE = 5


def run(args, words, device, record):
    command = [args.aorta, "exec", *words, "--backend", args.backend, "--config", "observed_iterations=0", "--json", str(record)]
    command += ["--device", str(device)] if args.backend == "cuda" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return record


def series(args, words, device, count, end, folder, into):
    """Runs on one device, one after the other; their records."""
    runs = []
    while len(runs) < count and time.monotonic() < end:
        runs.append(run(args, words, device, folder / f"{device}-{len(runs)}.json"))
    into[device] = runs


def verdict(args, base, other):
    """What `aorta compare` says of the medians of two lists of records."""
    command = [args.aorta, "compare", ",".join(map(str, base)), ",".join(map(str, other)), "--metric", "time.p50",
               "--format", "json", "--fail-on", "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["others"][0]["pairs"][0]["rows"][0]["verdict"]


def called(args, pairs):
    """The share of pairs that are called different, and of those of which nothing can be said."""
    verdicts = [verdict(args, base, other) for base, other in pairs]
    share = lambda *words: sum(word in words for word in verdicts) / max(len(verdicts), 1)
    return f"{share('better', 'worse'):.1%} | {share('cannot tell', 'cannot_tell'):.1%}"


def turns(args, words, device):
    """The share of comparisons of a side with itself that find a difference, as `aorta ab` says it."""
    command = [args.aorta, "ab", *words, "--backend", args.backend, "--rounds", str(args.rounds), "--no-apart"]
    command += ["--device", str(device)] if args.backend == "cuda" else []
    done = subprocess.run(command, capture_output=True, text=True)
    line = re.search(r"^A against A.*$", done.stdout, re.MULTILINE)
    table = re.search(r"^interleaved.*$", done.stdout, re.MULTILINE)
    return f"{line.group(0) if line else done.stderr.strip()} {table.group(0) if table else ''}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--devices", default="0", help="numbers, with commas between")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200, help="of `aorta ab`")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new run of a case after that many")
    parser.add_argument("--only", help="a case, by a part of its name")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    devices = [int(device) for device in args.devices.split(",")]
    lines = ["| file | pairs | intervals do not meet | called different | cannot tell | sides of 5: called different | cannot tell | "
             "apart: median | p95 | most |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, words in CASES.items():
        if args.only and args.only not in name:
            continue
        print(f"{name}: {turns(args, words, devices[0])}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            runs, end = {}, time.monotonic() + args.seconds
            count = -(-args.pairs // len(devices)) + 1
            threads = [threading.Thread(target=series, args=(args, words, device, count, end, pathlib.Path(folder), runs))
                       for device in devices]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            pairs = [pair for of in runs.values() for pair in zip(of, of[1:])]
            sides = [of[at:at + SIDE] for of in runs.values() for at in range(0, len(of) - SIDE + 1, SIDE)]
            of_sides = [pair for pair in zip(sides, sides[1:]) if pair[0][0].name.split("-")[0] == pair[1][0].name.split("-")[0]]
            times = {path: json.loads(path.read_text())["variants"][0]["time"] for of in runs.values() for path in of}
            apart = [times[a]["p50_high_ns"] < times[b]["p50_low_ns"] or times[b]["p50_high_ns"] < times[a]["p50_low_ns"] for a, b in pairs]
            by = [abs(times[a]["p50_ns"] / times[b]["p50_ns"] - 1) for a, b in pairs]
            lines.append(f"| {name} | {len(pairs)} | {sum(apart) / len(pairs):.1%} | {called(args, [([a], [b]) for a, b in pairs])} | {called(args, of_sides)} | "
                         f"{statistics.median(by):.2%} | {statistics.quantiles(by, n=20)[-1]:.2%} | {max(by):.2%} |")
            print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
