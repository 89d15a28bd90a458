#!/usr/bin/env python3
"""Writes what shapes.py has measured to docs/measurements/operations.csv, from which the page of operations has its speeds.

    python3 benches/h200/speeds.py --page 2026-11-25-operations.md --device H200 --seeds 1,2 first.md second.md

Each file is one that `shapes.py --markdown` wrote, of the seed at the same place. Operations that no file has keep their line.
"""
import argparse
import csv
import pathlib

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs/measurements/operations.csv"

# The operations of a group of drawn cases, where it has several or another name.
GROUPS = {
    "reductions": "sum mean prod max min argmax argmin logsumexp",
    "norms": "rms_norm layer_norm add_rms_norm add_layer_norm",
    "group_norms": "group_norm instance_norm",
    "losses": "cross_entropy mse l1 huber kl_div hinge",
    "scans": "cumsum cumprod",
    "distances": "cosine_similarity triplet",
    "permute": "permute unpermute",
    "pool": "pool pool_backward",
    "conv": "conv conv_weights",
}

# Forms of an operation that has a group of its own.
FORMS = ("pages", "map_several")


def summaries(path):
    """Median, worst tenth and worst of each group in a file."""
    found = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        # The table of all cases follows after an empty line.
        if not line:
            break
        if len(cells) == 10 and cells[1].isdigit():
            found[cells[0]] = cells[2:5]
    return found


def drawn(path, group):
    """The first word of each case of a group in a file: the operation, in groups of several."""
    rows = (line.strip("| ").split(" | ") for line in path.read_text().splitlines())
    return {cells[1].split()[0] for cells in rows if len(cells) == 8 and cells[0] == group}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", required=True, help="the page in docs/measurements that says how")
    parser.add_argument("--device", required=True)
    parser.add_argument("--seeds", required=True, help="of each file, separated by commas")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    by_seed = {}
    for seed, path in zip(args.seeds.split(","), args.files, strict=True):
        by_seed.setdefault(seed, {}).update(summaries(path))
    with TABLE.open() as table:
        head, *lines = csv.reader(table)
    kept = {line[0]: line for line in lines}
    groups = {group for found in by_seed.values() for group in found if group not in FORMS}
    for group in sorted(groups):
        listed = GROUPS.get(group, group).split()
        words = set().union(*(drawn(path, group) for path in args.files))
        # Operations that no case was drawn of were not measured.
        names = " ".join([name for name in listed if name in words] or listed)
        seeds = [seed for seed, found in by_seed.items() if group in found]
        figures = [" ".join(by_seed[seed][group][place] for seed in seeds) for place in range(3)]
        before = next((known for known in kept if set(known.split()) <= set(listed)), None)
        line = [names, args.page, args.page[:10], args.device, " ".join(seeds), *figures]
        kept = {names if known == before else known: line if known == before else other for known, other in kept.items()}
        kept.setdefault(names, line)
    with TABLE.open("w") as table:
        csv.writer(table, lineterminator="\n").writerows([head, *kept.values()])


if __name__ == "__main__":
    main()
