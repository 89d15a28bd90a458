"""Compares what HolisticTraceAnalysis computes from aorta's trace with the record of the same run.

    python3 benches/pages/overlap.py AORTA FILE [OPTION...] [-- FILE [OPTION...]]...

HolisticTraceAnalysis, of PyPI, takes a trace of one process in each file, and knows collectives by the names of NCCL's
kernels. So the script writes each process of the trace to a file of its own, and puts a name of NCCL before those of
collectives. It leaves out the part of a collective that waits for other ranks, which aorta does not count as exposed
communication, while to HolisticTraceAnalysis the whole kernel communicates. Nothing else is changed. Both sides are of one traced iteration of each launch mode and rank:

- idle time: the part from the first begin of an operation to the last end in which no operation runs;
- overlap: the part of collectives during which another kernel or copy runs, which the record has as exposed time.

Prints a line for each program with the greatest difference, as a share of the iteration, and fails beyond 1 %.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile

# It rounds times to microseconds otherwise, and says much.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.WARNING)

LIMIT = 0.01
KERNEL = "ncclDevKernel_"


def covered(spans):
    """Time that spans cover, in ns."""
    total, free = 0, float("-inf")
    for start, end in sorted(spans):
        total += max(0, end - max(start, free))
        free = max(free, end)
    return total


def record_figures(record):
    """Idle and exposed time of each process in the order of the trace; the second is None without collectives."""
    for variant in record["variants"]:
        for rank in variant["ranks"]:
            spans = [(span["start_ns"], span["end_ns"]) for span in rank.get("trace", [])]
            if not spans:
                yield None
                continue
            begin, end = min(start for start, _ in spans), max(end for _, end in spans)
            categories = {one["category"]: one for one in (rank.get("analysis") or {}).get("categories", [])}
            exposed = categories.get("collective", {}).get("exposed_ns")
            yield end - begin - covered(spans), exposed, end - begin


def transfers(record):
    """Median transfer time of each collective in ns, by process and operation."""
    ranks = [rank for variant in record["variants"] for rank in variant["ranks"]]
    operations = ((pid, operation) for pid, rank in enumerate(ranks) for operation in rank["operations"])
    known = ((pid, one) for pid, one in operations if one["category"] == "collective")
    return {(pid, one["id"]): one.get("transfer_ns") for pid, one in known}


def split(trace, transfer, folder):
    """Writes each process of a trace to a file, and returns the files by their numbers."""
    files = {}
    for pid in sorted({event["pid"] for event in trace["traceEvents"]}):
        events = []
        for event in trace["traceEvents"]:
            if event["pid"] != pid:
                continue
            key = pid, event.get("args", {}).get("correlation")
            if event["ph"] == "X" and key in transfer:
                duration = min(event["dur"], (transfer[key] or event["dur"] * 1e3) / 1e3)
                start = event["ts"] + event["dur"] - duration
                event = {**event, "name": KERNEL + event["name"], "ts": start, "dur": duration}
            events.append(event)
        files[pid] = os.path.join(folder, f"rank{pid}.json")
        with open(files[pid], "w") as file:
            json.dump({**trace, "traceEvents": events, "distributedInfo": {"rank": pid}}, file)
    return files


def compare(aorta, arguments):
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as folder:
        record, trace = os.path.join(folder, "record.json"), os.path.join(folder, "trace.json")
        always = ["--backend", "sim", "--effort", "quick", "--json", record, "--trace", trace]
        subprocess.run([aorta, "exec", *arguments, *always], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(record) as file:
            run = json.load(file)
        own, transfer = list(record_figures(run)), transfers(run)
        with open(trace) as file:
            whole = json.load(file)
        analysis = TraceAnalysis(trace_files={n: f for n, f in split(whole, transfer, folder).items() if own[n]}, trace_dir=folder)
        idle = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
        collectives = any(figures and figures[1] is not None for figures in own)
        overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank") if collectives else None
        worst = {"idle": 0.0, "overlap": 0.0}
        texts = []
        for rank, figures in enumerate(own):
            if not figures:
                continue
            (free, exposed, length), theirs = figures, idle.loc[rank]
            worst["idle"] = max(worst["idle"], abs(theirs["idle_time(us)"] * 1e3 - free) / length)
            if rank == 0:
                texts.append(f"idle {free / 1e3:.2f} and {theirs['idle_time(us)']:.2f} µs of {length / 1e3:.2f} µs")
            if overlap is None or exposed is None:
                continue
            with open(os.path.join(folder, f"rank{rank}.json")) as file:
                events = json.load(file)["traceEvents"]
            spans = [event for event in events if event["ph"] == "X" and event["name"].startswith(KERNEL)]
            busy = covered([(span["ts"] * 1e3, (span["ts"] + span["dur"]) * 1e3) for span in spans])
            share = overlap.loc[rank]["comp_comm_overlap_pctg"] / 100
            worst["overlap"] = max(worst["overlap"], abs((1 - share) * busy - exposed) / length)
            if rank == 0:
                texts.append(f"exposed {exposed / 1e3:.2f} and {(1 - share) * busy / 1e3:.2f} µs")
        differences = ", ".join(f"{name} differs by {100 * value:.3f} %" for name, value in worst.items())
        print(f"{' '.join(arguments)}: {len([one for one in own if one])} traces; {'; '.join(texts)}; {differences}", flush=True)
        return max(worst.values()) <= LIMIT


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
