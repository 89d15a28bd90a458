#!/usr/bin/env python3
"""The simulator beside the device: every shipped file at 4, 8 and 16 streams, measured and simulated.

    python3 benches/h200/simulated.py --aorta target/release/aorta [--markdown FILE] [FILE ...]

A ratio is the simulated time over the measured one; 1 is right. Both are medians of an iteration, cold caches are not
enforced, and the simulator uses the profile that --profile names.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(args, file, streams, backend, record):
    command = [args.aorta, "exec", str(file), "--backend", backend, "--launch", "both", "--streams", str(streams),
               "--warmup", "5", "--iterations", "20", "--config", "observed_iterations=0", "--json", str(record)]
    if backend == "sim":
        command += ["--config", f"profile={args.profile}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    variants = json.loads(record.read_text())["variants"]
    return {variant["launch"]: variant["time"]["p50_ns"] / 1e3 for variant in variants}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--profile", default="h200")
    parser.add_argument("--measured", type=pathlib.Path, help="keep measured times here; where the file is there, use them")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    files = args.files or sorted(ROOT.glob("workloads/*/*.aorta")) + sorted(ROOT.glob("examples/*.aorta"))
    known = json.loads(args.measured.read_text()) if args.measured and args.measured.exists() else {}
    lines = ["| file | streams | as streams: measured, µs | simulated, µs | ratio | as a graph: measured, µs | simulated, µs | ratio |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.json"
        for file in files:
            for streams in (4, 8, 16):
                key = f"{file.stem} {streams}"
                measured = known.get(key) or run(args, file, streams, "cuda", record)
                known[key] = measured
                simulated = run(args, file, streams, "sim", record)
                cells = []
                for launch in ("stream", "graph"):
                    if launch in measured and launch in simulated:
                        ratio = simulated[launch] / measured[launch]
                        cells += [f"{measured[launch]:.1f}", f"{simulated[launch]:.1f}", f"{ratio:.2f}"]
                    else:
                        cells += ["–", "–", "–"]
                lines.append(f"| {file.stem} | {streams} | {' | '.join(cells)} |")
    if args.measured:
        args.measured.write_text(json.dumps(known, indent=1) + "\n")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
