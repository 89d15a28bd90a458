#!/usr/bin/env python3
"""Collectives beside nccl-tests, 1 KiB to 1 GiB, one process and a thread for each GPU on both sides, or a process for each
GPU on both sides, in alternation.

    git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests MPI=0 NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90
    python3 benches/h200/collectives.py --aorta target/release/aorta --nccl-tests nccl-tests/build --gpus 2 [--markdown FILE]

Three comparisons, out of place: as streams without a gate beside nccl-tests as it is; as a graph of 20 calls beside
nccl-tests with `--cudagraph 20`; and, for the record, as streams with the gate, which nccl-tests does not have. Bus
bandwidth by nccl-tests' factors. With `--processes`, both run under `mpirun -n GPUS`, a process for each GPU; nccl-tests
is then one that was built with MPI=1. nccl-tests takes its buffers by ncclMemAlloc, aorta by cuMemAlloc: NCCL can register
the former in graphs. `NCCL_GRAPH_REGISTER=0` before the command turns that off on both sides.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FILES = HERE.parent.parent / "workloads/collectives"
PROGRAMS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "all_to_all": "alltoall"}
SIZES = [1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20, 1 << 30]
REPEAT = 20


def launcher(args):
    return ["mpirun", "-n", str(args.gpus)] if args.processes else []


def theirs(args, name, sizes, graph):
    """Microseconds by size. Sizes are four times the one before, as SIZES are."""
    threads = 1 if args.processes else args.gpus
    command = [*launcher(args), str(args.nccl_tests / f"{PROGRAMS[name]}_perf"), "-t", str(threads), "-g", "1",
               "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "4", "-n", "100", "-w", "10", "-c", "0"]
    command += ["-G", "20", "-n", str(REPEAT)] if graph else []
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.strip() and line.strip()[0].isdigit()]
    # size count type redop root | out of place: time algbw busbw wrong | in place: …
    return {int(row[0]): float(row[-8]) for row in rows}


def ours(args, name, size, words, folder):
    record = folder / "record.json"
    command = [*launcher(args), args.aorta, "exec", str(FILES / f"{name}.aorta"), "--backend", "cuda", "--ranks", str(args.gpus),
               "--set", f"size={size}B", "--set", "sizes=1", "--set", f"repeat={REPEAT}", "--config", "observed_iterations=0", "--json", str(record), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    variants = {variant["launch"]: variant for variant in json.loads(record.read_text())["variants"]}
    return {launch: variant["time"]["p50_ns"] / 1e3 / REPEAT for launch, variant in variants.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--nccl-tests", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", help="bytes, with commas between")
    parser.add_argument("--only", help="collectives, with commas between")
    parser.add_argument("--processes", action="store_true", help="a process for each GPU")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    n = args.gpus
    sizes = [int(size) for size in args.sizes.split(",")] if args.sizes else SIZES
    factor = {"all_reduce": 2 * (n - 1) / n}
    lines = ["| collective | size | nccl-tests, µs | GB/s | without the gate, µs | GB/s | time over theirs | by round | "
             "nccl-tests' graph, µs | as a graph, µs | over theirs | by round | held at the gate, µs |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | ---: |"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in args.only.split(",") if args.only else PROGRAMS:
            rounds = []
            for _ in range(args.rounds):
                plain, graph = theirs(args, name, sizes, False), theirs(args, name, sizes, True)
                for size in sizes:
                    loose = ours(args, name, size, ["--launch", "stream", "--gate", "off", "--effort", "quick"], folder)
                    both = ours(args, name, size, ["--launch", "both"], folder)
                    rounds.append((size, plain.get(size), loose["stream"], graph.get(size), both.get("graph"), both["stream"]))
            for size in sizes:
                of = [round_[1:] for round_ in rounds if round_[0] == size]
                # nccl-tests rounds sizes down to what all ranks share: a size that it has not is left out.
                if any(value is None for round_ in of for value in round_):
                    continue
                plain, loose, graph, as_graph, held = (statistics.median(column) for column in zip(*of))
                rate = lambda us: size * factor.get(name, (n - 1) / n) / us / 1e3
                spread = lambda a, b: "{:.2f} to {:.2f}".format(*(f(round_[b] / round_[a] for round_ in of) for f in (min, max)))
                lines.append(f"| {name} | {size >> 10} KiB | {plain:.2f} | {rate(plain):.2f} | {loose:.2f} | {rate(loose):.2f} | "
                             f"{loose / plain:.3f} | {spread(0, 1)} | {graph:.2f} | {as_graph:.2f} | {as_graph / graph:.3f} | "
                             f"{spread(2, 3)} | {held:.2f} |")
                print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
