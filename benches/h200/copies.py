#!/usr/bin/env python3
"""Copies beside the CUDA runtime's own: the same copies by copies.cu and by aorta, in alternation, in one run.

    python3 benches/h200/copies.py --aorta target/release/aorta [--rounds 7] [--markdown FILE]

Fifty copies in a row on one stream (ten of the largest), an event pair around them, pinned memory on the host's side.
Both sides issue them as streams. copies.cu knows no gate, so that its small copies wait for the host. Its like of aorta is
`--gate off`, and rates are compared with that. What a copy takes at the gate, the device's time alone, has a column and no
ratio. Needs nvcc; copies to a peer need two GPUs.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SIZES = [64 << 10, 1 << 20, 16 << 20, 256 << 20]
COUNT = 50


def count(size):
    """Copies in a row: copies.cu takes as many."""
    return COUNT if size < 64 << 20 else COUNT // 5


def floor(binary):
    lines = subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines()
    return {(probe["copy"], probe["bytes"]): probe["us"] for probe in map(json.loads, lines)}


def ours(args, copy, size, gate, folder):
    """Microseconds for each copy."""
    record = folder / "record.json"
    peer = copy == "p2p"
    file = "peers.aorta" if peer else "copies.aorta"
    sets = {"count": count(size)} | ({"elements": size // 4} if peer else {"bytes": size, "call": copy})
    command = [args.aorta, "exec", str(HERE / "files" / file), "--backend", "cuda", "--launch", "stream", "--gate", gate,
               "--warmup", "10", "--iterations", "30", "--config", "in_flight=1", "--config", "observed_iterations=0",
               "--json", str(record), *(["--ranks", "2"] if peer else [])]
    command += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(record.read_text())["variants"][0]["time"]["p50_ns"] / 1e3 / count(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--peers", action="store_true", help="copies to a peer too: two GPUs")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new round after that many")
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        binary = folder / "copies"
        subprocess.run(["nvcc", "-O3", f"-arch={args.arch}", "-o", str(binary), str(HERE / "copies.cu")], check=True)
        floors, held, loose = [], [], []
        for round_ in range(args.rounds):
            if round_ and time.monotonic() - begin > args.seconds:
                break
            floors.append(floor(binary))
            cases = [case for case in floors[0] if case[0] != "p2p" or args.peers]
            held.append({case: ours(args, *case, "auto", folder) for case in cases})
            loose.append({case: ours(args, *case, "off", folder) for case in cases})
    lines = ["| copy | size | CUDA, µs | GB/s | aorta, host-paced, µs | GB/s | aorta's rate over CUDA's | by round | at the gate, µs |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |"]
    for copy, size in sorted(held[0], key=lambda case: (["h2d", "d2h", "d2d", "p2p"].index(case[0]), case[1])):
        rounds = [[round_[copy, size] for round_ in side] for side in (floors, loose, held)]
        theirs, mine, at_gate = map(statistics.median, rounds)
        ratios = [their / our for their, our in zip(rounds[0], rounds[1])]
        rate = lambda us: size / us / 1e3
        lines.append(f"| {copy} | {size >> 10} KiB | {theirs:.2f} | {rate(theirs):.1f} | {mine:.2f} | {rate(mine):.1f} | "
                     f"{theirs / mine:.3f} | {min(ratios):.3f} to {max(ratios):.3f} | {at_gate:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
