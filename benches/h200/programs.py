#!/usr/bin/env python3
"""Whole programs drawn by seed, measured and simulated: as streams and as graphs, on their own streams and on one.

    python3 benches/h200/programs.py --aorta target/release/aorta --seed 1 --cases 60 --measured FILE
    python3 benches/h200/programs.py --aorta target/release/aorta --simulated FILE [--before OTHER]

The first command measures, and keeps texts and times in FILE. The second needs no GPU: it simulates the programs of FILE. A ratio is the
simulated over the measured time of an iteration; 1 is right. Iterations begin with cold caches, so that the host is ahead of the device. The second table asks whether the simulator orders two variants of a
program as the device does: several streams or one, streams or a graph. Pairs whose measured times differ by less than a tenth do not count.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile

from drawn_programs import PROGRAMS

# Programs of a file: each is a slot of its cycle.
SLOTS = 10


def renamed(text, number):
    return re.sub(r"\bb(\d+)\b", rf"p{number}_\1", text)


def workload(programs, streams):
    """A file in which each program is a slot; the first slot does nothing."""
    lines = [f"stream s[{streams}]"]
    for number, program in enumerate(programs):
        lines += [f"buffer {renamed(name, number)}: {rest}" for name, rest in program["buffers"].items()]
    lines.append(f"step {{\n  if iteration % {len(programs) + 1} == 0 {{ on s[0] {{ nop() }} }}")
    for number, program in enumerate(programs):
        body = "\n    ".join(renamed(line, number) for line in program["body"])
        lines.append(f"  if iteration % {len(programs) + 1} == {number + 1} {{\n    {body}\n  }}")
    return "\n".join(lines) + "\n}\n"


# Arguments of `aorta exec` by the name of a way to run a program.
WAYS = {"all": [], "one": ["--streams", "1"], "fused": ["--fuse"]}


def times(aorta, path, slots, backend, way, rounds, profile="h100"):
    """Microseconds of an iteration of each slot but the first, by launch; an empty list if the program does not run."""
    record = path.with_suffix(f".{backend}.{way}.json")
    command = [aorta, "exec", str(path), "--backend", backend, "--launch", "both", "--warmup", str(2 * slots), "--iterations",
               str(rounds * slots), "--config", "observed_iterations=0", "--cache", "cold", "--timeout", "60s", "--json", str(record)]
    command += WAYS[way]
    command += ["--config", f"profile={profile}"] if backend == "sim" else []
    # Other processes use the device in the round that compiles, so products choose their algorithms again.
    command += ["--config", "keep_algorithms=false"] if backend == "cuda" and rounds == 1 else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(f"{path.name}: {done.stderr[-1500:]}", flush=True)
        return {}
    variants = json.loads(record.read_text())["variants"]
    for note in {note for variant in variants for note in variant["notes"] if backend == "cuda" and rounds > 1}:
        print(f"{path.name} {way}: {note}", flush=True)
    return {variant["launch"]: [(slot.get("p50_ns") or math.nan) / 1e3 for slot in variant["time"]["slots"][1:]] for variant in variants}


def files(programs, folder):
    """The programs of each number of streams and of equal ways, in files of several: indices of programs, path and ways.

    Programs with pageable memory have files of their own: their copies block the host, so the gate cannot hold iterations of such a file.
    """
    groups = collections.defaultdict(list)
    for number, program in enumerate(programs):
        pageable = any(rest.endswith(" in host") for rest in program["buffers"].values())
        groups[program["streams"], pageable, tuple(program.get("ways", ("all", "one")))].append(number)
    made = []
    for (streams, pageable, ways), numbers in sorted(groups.items(), reverse=True):
        for begin in range(0, len(numbers), SLOTS):
            part = numbers[begin:begin + SLOTS]
            path = folder / f"s{streams}_{'pageable_' if pageable else ''}{'_'.join(ways)}_{begin}.aorta"
            path.write_text(workload([programs[number] for number in part], streams))
            made.append((part, path, ways))
    return made


def all_times(aorta, programs, backend, rounds, workers, keep=lambda found: None, profile="h100"):
    """For each program, times by variant: launch and number of streams. `keep` is called with those so far."""
    found = [{} for _ in programs]
    with tempfile.TemporaryDirectory() as folder:
        tasks = [(numbers, path, way) for numbers, path, ways in files(programs, pathlib.Path(folder)) for way in ways]

        def run(task):
            numbers, path, way = task
            return times(aorta, path, len(numbers) + 1, backend, way, rounds, profile)

        if backend == "cuda":
            # Compiles the kernels side by side, before anything is measured.
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                list(pool.map(lambda task: times(aorta, task[1], len(task[0]) + 1, backend, task[2], 1), [task for task in tasks if task[2] != "one"]))
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for (numbers, _, way), variants in zip(tasks, pool.map(run, tasks)):
                for launch, slots in variants.items():
                    for number, time in zip(numbers, slots):
                        found[number][f"{launch} {way}"] = time
                keep(found)
    return found


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def error(ratio):
    return max(ratio, 1 / ratio)


def summary(ratios):
    within = sum(error(ratio) <= 1.5 for ratio in ratios) / len(ratios)
    return (f"{len(ratios)} | {statistics.median(ratios):.2f} | {quantile(ratios, 0.1):.2f} to {quantile(ratios, 0.9):.2f} | "
            f"{max(ratios, key=error):.2f} | {within:.2f}")


def ordered(programs, simulated, pair):
    """Numbers of pairs that the simulator orders as the device does, and of all."""
    right = total = 0
    for program, own in zip(programs, simulated):
        measured = program["measured"]
        if all(variant in measured and variant in own for variant in pair):
            first, second = (measured[variant] for variant in pair)
            if max(first, second) > 1.1 * min(first, second):
                total += 1
                right += (own[pair[0]] < own[pair[1]]) == (first < second)
    return right, total


def table(programs, simulated):
    groups = collections.defaultdict(list)
    for program, own in zip(programs, simulated):
        for variant, time in program["measured"].items():
            if variant in own and time > 0 and own[variant] > 0:
                launch, streams = variant.split()
                streams = "one" if streams == "one" else "several"
                for key in ((program["family"], launch, streams), ("all", launch, streams)):
                    groups[key].append(own[variant] / time)
    lines = ["| programs | launch | streams | cases | median | 10th to 90th percentile | worst | within 1.5 |", "| --- | --- | --- | ---: | ---: | --- | ---: | ---: |"]
    lines += [f"| {' | '.join(key)} | {summary(ratios)} |" for key, ratios in sorted(groups.items())]
    lines += ["", "| pair | ordered as on the device |", "| --- | --- |"]
    for pair in (("stream all", "stream one"), ("graph all", "graph one"), ("stream all", "graph all"), ("stream one", "graph one")):
        right, total = ordered(programs, simulated, pair)
        lines.append(f"| {pair[0]} or {pair[1]} | {right} of {total} |")
    return lines


def run(doc, families, profile, draw, table, row):
    """The command line of a comparison of drawn programs with the simulator. `draw` returns the programs of the arguments, `table` the
    lines of the comparison, `row` the begin of a program's line in a list."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--before", help="an earlier binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=48)
    parser.add_argument("--families", default=",".join(families))
    parser.add_argument("--measured", type=pathlib.Path, help="measure, and keep programs and times here")
    parser.add_argument("--simulated", type=pathlib.Path, help="simulate the programs of this file")
    parser.add_argument("--profile", default=profile, help="the simulated device")
    parser.add_argument("--list", action="store_true", help="print the times of each program")
    args = parser.parse_args()
    if args.measured:
        programs = draw(args.seed, args.families.split(","), args.cases)

        def keep(found):
            for program, own in zip(programs, found):
                program["measured"] = own
            args.measured.write_text(json.dumps(programs, indent=1) + "\n")

        all_times(args.aorta, programs, "cuda", 7, 1, keep)
        print(f"{sum(bool(program['measured']) for program in programs)} of {len(programs)} programs measured")
        return
    programs = json.loads(args.simulated.read_text())
    for aorta in filter(None, (args.before, args.aorta)):
        simulated = all_times(aorta, programs, "sim", 1, os.cpu_count(), profile=args.profile)
        print("\n".join([aorta, "", *table(programs, simulated), ""]))
        if args.list:
            for number, (program, own) in enumerate(zip(programs, simulated)):
                cells = [f"{variant} {time:9.2f} {own.get(variant, math.nan):9.2f} {own.get(variant, math.nan) / time:5.2f}"
                         for variant, time in program["measured"].items()]
                print(f"{row(number, program)}  " + "  ".join(cells))


def drawn(seed, families, cases):
    """The programs of these families in turn."""
    programs = []
    for number in range(cases):
        name = families[number % len(families)]
        drawn = PROGRAMS[name](random.Random(f"{seed} {name} {number}"))
        programs.append({"family": drawn.family, "streams": drawn.streams, "buffers": drawn.buffers, "body": drawn.body})
    return programs


if __name__ == "__main__":
    run(__doc__, PROGRAMS, "h100", drawn, table, lambda number, program: f"{number:3} {program['family']:9} {program['streams']:2}")
