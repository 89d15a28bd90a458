#!/usr/bin/env python3
"""What calls cost on this device: the figures that a profile of it (config/devices) is made of.

    python3 benches/h200/calls.py --aorta target/release/aorta [--markdown FILE]

For each kind of call: what one costs the host while the driver's queue has room, and how long one takes on the device,
as streams and in a graph. Matrix products, vector kernels and copies over a range of sizes. Then what launching a graph
costs the host, by its nodes and branches.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

CASES = (
    [(call, {"call": call, "count": 200}) for call in ("nop", "map", "softmax", "gemm", "memset", "h2d", "d2h", "d2d", "all_to_all")]
    + [("pageable 4 KiB", {"call": "pageable", "count": 100})]
    + [("nop, one", {"call": "nop", "count": 1}), ("nop, two", {"call": "nop", "count": 2})]
    + [("nop, 2 streams", {"call": "nop", "count": 200, "streams": 2}),
       ("nop, 8 streams", {"call": "nop", "count": 200, "streams": 8}),
       ("nop, 32 streams", {"call": "nop", "count": 200, "streams": 32}),
       ("map, 8 streams", {"call": "map", "count": 200, "streams": 8})]
    + [(f"map {size >> 10} KiB", {"call": "map", "count": 50, "elements": size // 4})
       for size in (64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 32 * MIB, 128 * MIB, 512 * MIB)]
    + [(f"{call} {size >> 10} KiB", {"call": call, "count": 20, "elements": size // 4})
       for call in ("h2d", "d2h", "d2d") for size in (64 << 10, MIB, 16 * MIB, 128 * MIB)]
    + [(f"pageable {size >> 10} KiB", {"call": "pageable", "count": 10, "elements": size // 4}) for size in (64 << 10, MIB, 16 * MIB, 128 * MIB)]
    + [(f"all_to_all {size >> 10} KiB", {"call": "all_to_all", "count": 20, "elements": size // 4}) for size in (64 << 10, MIB, 16 * MIB, 128 * MIB)]
    + [(f"softmax {size >> 10} Ki", {"call": "softmax", "count": 20, "elements": size}) for size in (1 << 12, 1 << 16)]
    + [(f"gemm {dtype} {size}", {"call": "gemm", "count": 20 if size < 4096 else 5, "size": size, "dtype": dtype})
       for dtype in ("bf16", "f32") for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192)]
    + [(f"gemm bf16 [{m}, {k}] × [{k}, {n}], {weights} weights",
        {"call": "gemm", "count": 16, "m": m, "n": n, "k": k, "weights": weights, "dtype": "bf16"})
       for m, n, k in ((32, 1024, 1024), (128, 1024, 1024), (256, 4096, 1024), (256, 1024, 4096), (1024, 8, 1024))
       for weights in (1, 16)]
    + [(f"gemm bf16 [256, 1024] × [1024, 4096], 16 weights, {streams} streams",
        {"call": "gemm", "count": 32, "m": 256, "n": 4096, "k": 1024, "weights": 16, "dtype": "bf16", "streams": streams})
       for streams in (2, 8)]
    + [(f"gemm {dtype} 4096", {"call": "gemm", "count": 5, "size": 4096, "dtype": dtype}) for dtype in ("f16", "f64")]
)


# Branches and nodes of graphs whose launch is timed.
GRAPHS = [(streams, count) for count in (64, 256, 1024, 4096) for streams in (1, 4, 16, 64) if streams <= count]


def graph_launches(args, folder):
    lines = ["| branches | nodes | launching the graph, host, µs | device, µs |", "| ---: | ---: | ---: | ---: |"]
    for streams, count in GRAPHS:
        record = pathlib.Path(folder) / "record.json"
        command = [args.aorta, "exec", str(HERE / "files/launch.aorta"), "--backend", args.backend, "--launch", "graph",
                   "--streams", str(streams), "--set", f"count={count}", "--warmup", "5", "--iterations", "50",
                   "--config", "in_flight=1", "--config", "observed_iterations=0", "--json", str(record)]
        subprocess.run(command, capture_output=True, text=True, check=True)
        variant = json.loads(record.read_text())["variants"][0]
        cells = [f"{variant[figure]['p50_ns'] / 1e3:.2f}" for figure in ("issue", "time")]
        lines.append(f"| {streams} | {count} | {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    lines = ["| call | host, µs | device as streams, µs | device in a graph, µs |", "| --- | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        for name, parameters in CASES:
            record = pathlib.Path(folder) / "record.json"
            sets = [word for key, value in parameters.items() for word in ("--set", f"{key}={value}")]
            command = [args.aorta, "exec", str(HERE / "files/calls.aorta"), "--backend", args.backend, "--launch", "both",
                       "--warmup", "5", "--iterations", "30", "--config", "in_flight=1",
                       "--config", "observed_iterations=0", "--json", str(record), *sets]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                lines.append(f"| {name} | {done.stderr.strip().splitlines()[:3]} | | |")
                continue
            variants = {variant["launch"]: variant for variant in json.loads(record.read_text())["variants"]}
            count = parameters["count"]
            each = lambda variant, figure: f"{variants[variant][figure]['p50_ns'] / 1e3 / count:.3f}" if variant in variants else "–"
            lines.append(f"| {name} | {each('stream', 'issue')} | {each('stream', 'time')} | {each('graph', 'time')} |")
        lines += ["", *graph_launches(args, folder)]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
