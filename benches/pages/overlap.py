"""Compares what HolisticTraceAnalysis computes from aorta's traces with the record of the same run.

    python3 benches/pages/overlap.py AORTA FILE [OPTION...] [-- FILE [OPTION...]]...

HolisticTraceAnalysis, of PyPI, reads the folder that `--trace FOLDER/` writes; nothing in it is changed. Both sides are of
one traced iteration of each launch mode and rank:

- idle time: the part from the first begin of an operation to the last end in which no operation runs;
- exposed time: the part of collectives during which no operation computes. The record's is a median of all observed
  iterations, which are equal in a simulated run. Of a measured run the script computes that of the traced iteration.

Prints a line for each program and launch mode with the greatest difference of all ranks, as a share of the iteration, and
fails beyond 1 %.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile

# HolisticTraceAnalysis rounds times to microseconds otherwise, and logs much.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.WARNING)

LIMIT = 0.01


def covered(spans):
    """Time that spans cover, in ns."""
    total, free = 0, float("-inf")
    for start, end in sorted(spans):
        total += max(0, end - max(start, free))
        free = max(free, end)
    return total


def figures(rank, simulated):
    """Idle time, exposed time of collectives and length of a rank's iteration in ns; exposed is None without collectives."""
    spans = [(span["start_ns"], span["end_ns"]) for span in rank["trace"]]
    length = max(end for _, end in spans) - min(start for start, _ in spans)
    kinds = [rank["operations"][span["id"]]["category"] for span in rank["trace"]]
    meets = [span for span, kind in zip(spans, kinds) if kind == "collective"]
    computes = [span for span, kind in zip(spans, kinds) if kind not in ("collective", "copy", "marker")]
    exposed = covered(meets + computes) - covered(computes) if meets else None
    if simulated and exposed is not None:
        categories = {one["category"]: one for one in rank["analysis"]["categories"]}
        exposed = categories["collective"]["exposed_ns"]
    return length - covered(spans), exposed, length


def collectives(folder, rank):
    """Time that the collectives of a rank's trace cover, in ns."""
    with open(os.path.join(folder, f"rank{rank}.json")) as file:
        events = json.load(file)["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["name"].startswith("nccl")]
    return covered([(span["ts"] * 1e3, (span["ts"] + span["dur"]) * 1e3) for span in spans])


def compare_variant(title, variant, simulated, folder):
    from hta.trace_analysis import TraceAnalysis

    ranks = {rank["rank"]: figures(rank, simulated) for rank in variant["ranks"] if rank.get("trace")}
    if not ranks:
        print(f"{title}: no traced iteration")
        return True
    analysis = TraceAnalysis(trace_dir=folder)
    idle = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    known = any(exposed is not None for _, exposed, _ in ranks.values())
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank") if known else None
    worst, texts = {"idle": 0.0, "exposed": 0.0}, []
    for rank, (free, exposed, length) in ranks.items():
        theirs = idle.loc[rank]["idle_time(us)"] * 1e3
        worst["idle"] = max(worst["idle"], abs(theirs - free) / length)
        if rank == 0:
            texts.append(f"idle {free / 1e3:.2f} and {theirs / 1e3:.2f} µs of {length / 1e3:.2f} µs")
        if exposed is None:
            continue
        theirs = (1 - overlap.loc[rank]["comp_comm_overlap_pctg"] / 100) * collectives(folder, rank)
        worst["exposed"] = max(worst["exposed"], abs(theirs - exposed) / length)
        if rank == 0:
            texts.append(f"exposed {exposed / 1e3:.2f} and {theirs / 1e3:.2f} µs")
    differences = ", ".join(f"{name} differs by {100 * value:.3f} %" for name, value in worst.items())
    print(f"{title}, {variant['launch']}: {len(ranks)} ranks; {'; '.join(texts)}; {differences}", flush=True)
    return max(worst.values()) <= LIMIT


def compare(aorta, arguments):
    with tempfile.TemporaryDirectory() as folder:
        record, traces = os.path.join(folder, "record.json"), os.path.join(folder, "traces")
        always = ["--effort", "quick", "--json", record, "--trace", traces + "/"]
        subprocess.run([aorta, "exec", *arguments, *always], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(record) as file:
            run = json.load(file)
        title, simulated = " ".join(arguments), run["simulated"]
        return all([compare_variant(title, one, simulated, os.path.join(traces, one["launch"])) for one in run["variants"]])


def main(aorta, *rest):
    runs = [[]]
    for word in rest:
        if word == "--":
            runs.append([])
        else:
            runs[-1].append(word)
    good = [compare(aorta, run) for run in runs]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
