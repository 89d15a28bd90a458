#!/usr/bin/env python3
"""What aorta adds to the CUDA runtime: the same calls from floor.cu and from aorta, in alternation, in one run.

Host cost: empty kernels over 1, 8 and 32 streams, once more than the driver's queues hold (20000) and once fewer (500);
chains of a kernel, an event and a wait; events and waits alone. Graphs: 1024 empty kernels, 1 to 64 wide.
A figure is the median of the rounds' medians. A round of floor.cu takes the median of 6 repetitions. It knows no gate, so
aorta's streams are not held either (`--gate off`): both sides issue to a device that runs meanwhile.

Then the loop as a whole, by a clock outside: 500 kernels, gate, stamps and all. floor.cu issues 500 kernels and waits for
them; aorta's wall time is that of a run with 4000 iterations more. It runs them twice, held at the gate and as they are
issued, and both count.

    python3 benches/h200/floor.py --aorta target/release/aorta [--rounds 7] [--markdown FILE]

Needs nvcc and a GPU of architecture sm_90 (--arch for another).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

# floor.cu's probe and its field; aorta's pattern, streams, kernels, launch mode and figure
CASES = [
    *[(f"launch_streams_{n}", "host_us", "independent", n, 20000, "stream", "issue") for n in (1, 8, 32)],
    *[(f"burst_streams_{n}", "host_us", "independent", n, 500, "stream", "issue") for n in (1, 8, 32)],
    *[(f"launch_streams_{n}", "total_us", "independent", n, 20000, "stream", "time") for n in (1, 8, 32)],
    ("dependent_chain_two_streams", "host_us", "chain", 2, 20000, "stream", "issue"),
    ("dependent_chain_two_streams", "total_us", "chain", 2, 20000, "stream", "time"),
    ("record_and_wait", "host_us", "events", 2, 20000, "stream", "issue"),
    *[(f"graph_1024_nodes_wide_{n}", "total_us", "independent", n, 1024, "graph", "time") for n in (1, 4, 8, 16, 32, 64)],
]


def floor(binary):
    lines = subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines()
    return {probe["probe"]: probe for probe in map(json.loads, lines)}


def aorta(args, pattern, streams, count, launch, figure, folder):
    """Microseconds for each kernel."""
    record = folder / "record.json"
    iterations = ["--warmup", "1", "--iterations", "6"] if launch == "stream" else ["--warmup", "3", "--iterations", "50"]
    command = [args.aorta, "exec", str(HERE / "files/launch.aorta"), "--backend", "cuda", "--launch", launch,
               "--set", f"pattern={pattern}", "--set", f"count={count}", "--streams", str(streams), *iterations,
               "--gate", "off", "--config", "observed_iterations=0", "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    variant = json.loads(record.read_text())["variants"][0]
    if variant["launch"] != launch:
        raise SystemExit(f"{' '.join(command)}\nran as {variant['launch']}: {variant['notes']}")
    return variant[figure]["p50_ns"] / 1e3 / count


LOOP = 500
MORE = 4000


def loop(args, streams):
    """Microseconds for each kernel, by the wall's clock, of a run: iterations that are held at the gate, and as many that
    are not."""
    walls = []
    for iterations in (1000, 1000 + MORE):
        command = [args.aorta, "exec", str(HERE / "files/launch.aorta"), "--backend", "cuda", "--launch", "stream",
                   "--set", f"count={LOOP}", "--streams", str(streams), "--warmup", "10", "--iterations", str(iterations),
                   "--config", "observed_iterations=0"]
        begin = time.monotonic()
        subprocess.run(command, capture_output=True, text=True, check=True)
        walls.append(time.monotonic() - begin)
    return (walls[1] - walls[0]) * 1e6 / (2 * MORE) / LOOP


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--loops", type=int, default=3)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new round after that many")
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        binary = folder / "floor"
        subprocess.run(["nvcc", "-O3", f"-arch={args.arch}", "-o", str(binary), str(HERE / "floor.cu")], check=True)
        floors, ours = [], []
        for round_ in range(args.rounds):
            if round_ and time.monotonic() - begin > args.seconds:
                break
            floors.append(floor(binary))
            ours.append([aorta(args, *case[2:], folder) for case in CASES])
    lines = ["| calls | figure | floor, µs | aorta, µs | ratio | by round |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for index, (probe, field, *_rest) in enumerate(CASES):
        divisor = 1024 if probe.startswith("graph") else 1
        below = statistics.median(round_[probe][field] for round_ in floors) / divisor
        above = statistics.median(round_[index] for round_ in ours)
        what = "host, each" if field == "host_us" else "device, each"
        ratios = [round_[index] * divisor / floor_[probe][field] for round_, floor_ in zip(ours, floors)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        lines.append(f"| {probe} | {what} | {below:.3f} | {above:.3f} | {above / below:.3f} | {spread} |")
    for streams in (1, 8):
        ours = statistics.median(loop(args, streams) for _ in range(args.loops))
        theirs = statistics.median(round_[f"burst_streams_{streams}"]["total_us"] for round_ in floors)
        lines.append(f"| burst_streams_{streams} | whole loop, each | {theirs:.3f} | {ours:.3f} | {ours / theirs:.3f} | |")
    others = [probe for probe in floors[0] if "total_us" in floors[0][probe] and probe not in {case[0] for case in CASES}]
    lines += ["", "| floor alone | host, µs | total, µs |", "| --- | ---: | ---: |"]
    for probe in others:
        host, total = (statistics.median(round_[probe][field] for round_ in floors) for field in ("host_us", "total_us"))
        lines.append(f"| {probe} | {host:.3f} | {total:.3f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
