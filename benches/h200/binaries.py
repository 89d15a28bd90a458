#!/usr/bin/env python3
"""Whether two builds of aorta measure the same: `binaries.py A B [--rounds 5]`.

Each file runs with A and B in turn, as often as there are rounds. A row has the file, what A measured (the median over the
rounds of its medians), and the median over the rounds of B / A: of the time at the gate, of the time that the host paces,
and of the host's launch time. The last row is the median over the files.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

FILES = [
    "latency/tiny_kernel_stress.aorta",
    "latency/hetero_kernels.aorta",
    "latency/queue_switch.aorta",
    "latency/large_gemm_only.aorta",
    "copies/sdma_overlap.aorta",
    "inference/speculative_decode.aorta",
    "distributed/moe.aorta",
]
TIMES = ["time", "ungated", "issue"]


def measure(binary, path):
    """Medians of a run, in ns: at the gate, paced by the host, of launching. None for one that was not measured."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [binary, "exec", str(path), "--launch", "stream", "--effort", "quick", "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        variant = json.load(open(out.name))["variants"][0]
    return [variant[name] and variant[name]["p50_ns"] for name in TIMES]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("a")
    arguments.add_argument("b")
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    workloads = pathlib.Path(__file__).resolve().parents[2] / "workloads"
    print("| file | gated, µs | B / A | host-paced, µs | B / A | launching, µs | B / A |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    all_ratios = [[], [], []]
    for name in FILES:
        rounds = [[measure(binary, workloads / name) for binary in (given.a, given.b)] for _ in range(given.rounds)]
        cells = []
        for index in range(len(TIMES)):
            pairs = [(a[index], b[index]) for a, b in rounds if a[index] and b[index]]
            if not pairs:
                cells += ["–", "–"]
                continue
            ratio = statistics.median(b / a for a, b in pairs)
            all_ratios[index].append(ratio)
            cells += [f"{statistics.median(a for a, _ in pairs) / 1e3:.1f}", f"{ratio:.3f}"]
        print(f"| {pathlib.Path(name).stem} | {' | '.join(cells)} |", flush=True)
    medians = [f"{statistics.median(ratios):.3f}" if ratios else "–" for ratios in all_ratios]
    print(f"| median | | {' | | '.join(medians)} |")


main()
