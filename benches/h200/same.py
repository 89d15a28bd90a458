#!/usr/bin/env python3
"""A/A: the same file measured again and again, in new processes. How often are two neighbours called different?

    python3 benches/h200/same.py --aorta target/release/aorta [--pairs 200] [--device 0] [--markdown FILE]

Each run is compared with the one before it: 201 runs are 200 pairs. Two runs are called different when the 95 %
intervals of their medians do not meet and the medians are 1 % apart or more. The intervals alone ask about the samples
of one run; what changes from process to process (where memory lies, how fast the host is just then) is beyond them, and
the column before shows how often they do not meet. The last columns show how far neighbours lie apart.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

CASES = {
    "moe, as a graph": ["moe", "--launch", "graph"],
    "tiny kernels, as a graph": ["tiny_kernel_stress", "--preset", "tiny", "--launch", "graph"],
    "tiny kernels, as streams": ["tiny_kernel_stress", "--preset", "tiny", "--launch", "stream"],
}


def run(args, words, folder):
    record = folder / "record.json"
    command = [args.aorta, "exec", *words, "--backend", args.backend, "--config", "observed_iterations=0", "--json", str(record)]
    command += ["--device", str(args.device)] if args.backend == "cuda" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())["variants"][0]["time"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new run of a case after that many")
    parser.add_argument("--only", help="a case, by a part of its name")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    lines = ["| file | pairs | intervals do not meet | called different | apart: median | p95 | most |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, words in CASES.items():
            if args.only and args.only not in name:
                continue
            begin, runs = time.monotonic(), []
            while len(runs) <= args.pairs and time.monotonic() - begin < args.seconds:
                runs.append(run(args, words, folder))
            pairs = list(zip(runs, runs[1:]))
            apart = [a["p50_high_ns"] < b["p50_low_ns"] or b["p50_high_ns"] < a["p50_low_ns"] for a, b in pairs]
            by = [abs(a["p50_ns"] / b["p50_ns"] - 1) for a, b in pairs]
            different = sum(away and much >= 0.01 for away, much in zip(apart, by)) / len(pairs)
            lines.append(f"| {name} | {len(pairs)} | {sum(apart) / len(pairs):.1%} | {different:.1%} | "
                         f"{statistics.median(by):.2%} | {statistics.quantiles(by, n=20)[-1]:.2%} | {max(by):.2%} |")
            print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
