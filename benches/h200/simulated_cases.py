#!/usr/bin/env python3
"""The simulator beside measured operations: needs no GPU.

    python3 benches/h200/simulated_cases.py --aorta target/release/aorta [--before OTHER] [--markdown FILE] [CSV ...]

Each row of docs/measurements/cases.csv is one operation that was measured. Its program is simulated by this version with the
profile of the device that it was measured on. A ratio is the simulated over the measured time; 1 is right. A table by
operation and one by size have the number of cases, the median ratio, and the error of the median case and of the worst
tenth; an error is the larger of the two times over the smaller one.

Parameters of a profile may be fitted to the half of the cases whose name has an even hash, and to no other: the second table
of each kind is that of the other half. `--before` names an earlier binary, whose figures stand in front.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor

import measured

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CASES = ROOT / "docs/measurements/cases.csv"


def fitted(row):
    """True if parameters may be fitted to a case."""
    return zlib.crc32(f"{row['device']} {row['operation']} {row['case']}".encode()) % 2 == 0


def simulated(aorta, row, profile, folder):
    """Microseconds of a call."""
    number = zlib.crc32(f"{aorta} {row}".encode())
    path, record = folder / f"{number}.aorta", folder / f"{number}.json"
    path.write_text(measured.program(row))
    command = [aorta, "exec", str(path), "--backend", "sim", "--config", f"profile={profile}", "--launch", "graph", "--warmup", "2",
               "--iterations", "3", "--cache", row["cache"], "--config", "observed_iterations=0", "--json", str(record)]
    # Graphs with hot caches were launched one by one, each on an idle device.
    command += ["--config", "in_flight=1"] if row["cache"] == "hot" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}\n{path.read_text()}\n{done.stderr[-2000:]}")
    return json.loads(record.read_text())["variants"][0]["time"]["p50_ns"] / 1e3 / int(row["calls"])


def error(ratio):
    return max(ratio, 1 / ratio)


def worst_tenth(errors):
    errors = sorted(errors)
    return errors[min(len(errors) - 1, int(0.9 * len(errors)))]


def summary(ratios):
    errors = [error(ratio) for ratio in ratios]
    return f"{statistics.median(ratios):.2f} | {statistics.median(errors):.2f} | {worst_tenth(errors):.2f}"


def size_class(row):
    mib = float(row["bytes"]) / (1 << 20)
    return "below 256 KiB" if mib < 0.25 else "256 KiB to 4 MiB" if mib < 4 else "4 to 64 MiB" if mib < 64 else "64 MiB and more"


def element(row):
    return next(iter(json.loads(row["buffers"]).values()), ["none"])[0]


def table(title, key, rows, times):
    lines = [f"| {title} | cases |" + " median ratio | median error | worst tenth |" * len(times),
             "| --- | ---: |" + " ---: | ---: | ---: |" * len(times)]
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for name, own in [*sorted(groups.items()), ("all", rows)]:
        cells = [summary([figures[row["number"]] / float(row["measured_us"]) for row in own]) for figures in times]
        lines.append(f"| {name} | {len(own)} | {' | '.join(cells)} |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--before", help="an earlier binary")
    parser.add_argument("--profiles", default="", help="other profiles than those named after the devices: H100=PATH,H200=PATH")
    parser.add_argument("--before-profiles", default="")
    parser.add_argument("--only", help="operations, with commas")
    parser.add_argument("--fitted", action="store_true", help="only the half of the cases that parameters are fitted to")
    parser.add_argument("--cases", action="store_true", help="print each case")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    rows = [row for file in args.files or [CASES] for row in measured.read(file)]
    rows = [row for row in rows if not args.only or row["operation"] in args.only.split(",")]
    rows = [row for row in rows if fitted(row) or not args.fitted]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for aorta, given in ((args.before, args.before_profiles), (args.aorta, args.profiles)):
            if not aorta:
                continue
            profiles = {"H100": "h100", "H200": "h200", **dict(pair.split("=") for pair in given.split(",") if pair)}
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                done = pool.map(lambda row: simulated(aorta, row, profiles[row["device"]], pathlib.Path(folder)), rows)
                times.append(list(done))
    for number, row in enumerate(rows):
        row["number"] = number
    lines = []
    halves = [("fitted", [row for row in rows if fitted(row)]), ("not fitted", [row for row in rows if not fitted(row)])]
    for half, own in halves:
        if own:
            for title, key in (("operation", lambda row: row["operation"]), ("size", size_class), ("type", element),
                               ("device", lambda row: f"{row['device']}, {row['cache']}")):
                lines += table(f"{title}, {half}", key, own, times)
    if args.cases:
        for row in rows:
            figures = " ".join(f"{one[row['number']]:9.2f} {one[row['number']] / float(row['measured_us']):5.2f}" for one in times)
            print(f"{float(row['measured_us']):9.2f} {figures}  {'F' if fitted(row) else ' '} {row['device']} {row['operation']:12} {row['case']}")
    text = "\n".join(lines)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
