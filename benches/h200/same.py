#!/usr/bin/env python3
"""A/A: the same file measured twice, in new processes, 200 pairs. How often are the two called different?

    python3 benches/h200/same.py --aorta target/release/aorta [--pairs 200] [--markdown FILE]

Two runs are called different when the 95 % intervals of their medians do not meet. That test asks about samples of one
run; what changes from process to process (where memory lies, which clock the device has reached) is beyond it, and is
what this script shows. Beside it: the same with a least difference of 1 % and of 2 % that is worth telling.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CASES = {
    "moe, as a graph": ["moe", "--launch", "graph"],
    "tiny kernels, as streams": ["tiny_kernel_stress", "--preset", "tiny", "--launch", "stream"],
}


def run(args, words, folder):
    record = folder / "record.json"
    command = [args.aorta, "exec", *words, "--backend", args.backend, "--config", "observed_iterations=0", "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())["variants"][0]["time"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    lines = ["| file | pairs | called different | and by 1 % or more | by 2 % or more | difference: median | p95 |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, words in CASES.items():
            apart, differences = [], []
            for _ in range(args.pairs):
                one, two = run(args, words, folder), run(args, words, folder)
                apart.append(one["p50_high_ns"] < two["p50_low_ns"] or two["p50_high_ns"] < one["p50_low_ns"])
                differences.append(abs(one["p50_ns"] / two["p50_ns"] - 1))
            share = lambda least: sum(a and d >= least for a, d in zip(apart, differences)) / args.pairs
            p95 = statistics.quantiles(differences, n=20)[-1]
            lines.append(f"| {name} | {args.pairs} | {share(0):.1%} | {share(0.01):.1%} | {share(0.02):.1%} | "
                         f"{statistics.median(differences):.2%} | {p95:.2%} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
