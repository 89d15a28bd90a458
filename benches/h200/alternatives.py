#!/usr/bin/env python3
"""Whether the simulator names the faster one of two ways to compute the same, on workloads drawn by seed.

    python3 benches/h200/alternatives.py --aorta target/release/aorta --seed 1 --cases 60 --measured FILE
    python3 benches/h200/alternatives.py --aorta target/release/aorta --simulated FILE [--before OTHER]

The first command measures each alternative of drawn_alternatives.py as streams and as a graph, and keeps texts and times in FILE. The second
needs no GPU: it simulates them. A pair is two alternatives with the same launch, or one alternative as streams and as a graph. Pairs whose
measured times differ by less than 5 % do not count. "Lost" compares the alternative that the simulator names as the fastest with the one
that is: 1.05 is a choice that takes 5 % longer than the best one.
"""
import itertools
import math
import random
import statistics

from drawn_alternatives import ALTERNATIVES
from programs import run

# Measured times of a pair differ by at least this factor.
DIFFERENT = 1.05


def drawn(seed, families, cases):
    """The programs of all alternatives, each with its case and its name."""
    programs = []
    for number in range(cases):
        family = families[number % len(families)]
        for name, program in ALTERNATIVES[family](random.Random(f"{seed} {family} {number}")).items():
            ways = ["fused"] if name == "fused" else ["all"]
            programs.append({"case": number, "family": family, "name": name, "ways": ways, "streams": program.streams,
                             "buffers": program.buffers, "body": program.body})
    return programs


def by_case(programs, simulated):
    """For each case, its family, and pairs of a measured and a simulated time by alternative and launch."""
    cases = {}
    for program, own in zip(programs, simulated):
        times = cases.setdefault(program["case"], (program["family"], {}))[1]
        for variant, time in program["measured"].items():
            if own.get(variant, math.nan) > 0 and time > 0:
                times[program["name"], variant.split()[0]] = time, own[variant]
    return cases.values()


def pairs(times):
    """The pairs of a case: a kind, and both pairs of times."""
    for first, second in itertools.combinations(times, 2):
        if first[1] == second[1]:
            yield f"as {'a graph' if first[1] == 'graph' else 'streams'}", times[first], times[second]
        elif first[0] == second[0]:
            yield "streams or graph", times[first], times[second]


def lost(times, launch):
    """The measured time of the alternative that the simulator chooses, over that of the best one."""
    own = [time for (_, of), time in times.items() if of == launch]
    return min(own, key=lambda time: time[1])[0] / min(own)[0] if len(own) > 1 else None


def table(programs, simulated):
    kinds = ("as streams", "as a graph", "streams or graph")
    counts, losses, ratios = {}, {}, {}
    for family, times in by_case(programs, simulated):
        for kind, first, second in pairs(times):
            if max(first[0], second[0]) > DIFFERENT * min(first[0], second[0]):
                right = (first[0] < second[0]) == (first[1] < second[1]) and first[1] != second[1]
                for key in ((family, kind), ("all", kind)):
                    found = counts.setdefault(key, [0, 0])
                    found[0] += right
                    found[1] += 1
        for launch in ("stream", "graph"):
            for key in (family, "all"):
                ratios.setdefault(key, []).extend(time[1] / time[0] for (_, of), time in times.items() if of == launch)
                if (more := lost(times, launch)) is not None:
                    losses.setdefault(key, []).append(more)
    lines = ["| alternatives | as streams | as a graph | streams or graph | lost: mean | worst | simulated/measured | within 1.5 |",
             "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"]
    for family in [*dict.fromkeys(program["family"] for program in programs), "all"]:
        cells = [f"{counts[family, kind][0]} of {counts[family, kind][1]}" if (family, kind) in counts else "–" for kind in kinds]
        own, more = ratios.get(family), losses.get(family)
        if own and more:
            within = sum(max(ratio, 1 / ratio) <= 1.5 for ratio in own) / len(own)
            lines.append(f"| {family} | {' | '.join(cells)} | {statistics.mean(more):.2f} | {max(more):.2f} | {statistics.median(own):.2f} | {within:.2f} |")
    return lines


if __name__ == "__main__":
    run(__doc__, ALTERNATIVES, "h200", drawn, table, lambda number, program: f"{program['case']:3} {program['family']:9} {program['name']:16}")
