#!/usr/bin/env python3
"""Measures how aorta observes single operations on a GPU: counters, observer effect, agreement of the methods, faults.

    python3 benches/h200/observe.py --aorta target/release/aorta --seed 24 --seconds 170 counters effect agree order faults

Each part prints a table in Markdown. A part ends early when the time is over, and says so.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="observe-"))
BEGAN = time.time()
ARGS = argparse.Namespace()


class Over(Exception):
    """No time is left."""


def left():
    return ARGS.seconds - (time.time() - BEGAN)


def say(*words):
    print(*words, flush=True)


def run(file, *words, program=None, env=None, under=(), limit=60):
    """Runs a workload. Returns the exit code, the record (None without one) and everything printed."""
    limit = min(limit, left())
    if limit < 2:
        raise Over
    record = FOLDER / "record.json"
    record.unlink(missing_ok=True)
    command = [*under, program or ARGS.aorta, "exec", str(file), "--backend", ARGS.backend, "--json", str(record), *words]
    try:
        done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"") + (error.stderr or b"")
        return 124, None, text.decode(errors="replace") if isinstance(text, bytes) else text
    found = json.loads(record.read_text()) if record.exists() else None
    return done.returncode, found, done.stdout + done.stderr


def method(variant):
    """The note about how operations were timed."""
    notes = [note for note in variant["notes"] if note.startswith("single operations are timed by ")]
    return notes[0].removeprefix("single operations are timed by ") if notes else "no note"


def written(name, text):
    path = FOLDER / name
    path.write_text(text)
    return path


def percent(value):
    return "–" if value is None else f"{100 * value:+.1f} %"


# Counters.

COUNTED = """
stream s
buffer a, b: bf16[4096, 4096] = random(1)
buffer x, y: f32[67108864] = random(2)
buffer h: f32[16777216] in pinned
buffer g: f32[16777216] = random(4)
step {
  on s {
    work[0]: copy(x -> y)
    work[1]: copy(x[0..16777216] -> h)
    work[2]: map(exp(x) -> y)
    work[3]: gemm(a, b)
    work[4]: all_reduce(x[0..16777216] -> g)
    work[5]: all_reduce(g -> g)
  }
}
"""

ATTENTION = """
stream s
buffer q, k, v: bf16[4, 16, 2048, 128] = random(3)
step { on s { attend: attention(q, k, v) } }
"""

COUNTS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum", "L2": "lts__t_bytes.sum",
          "SMs active": "sm__cycles_active.avg", "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}


def counters():
    """Counters of a copy, a copy to the host, a map, a product, collectives of one rank and an attention, for each way to observe."""
    cases = [(way, (), {}, "counted", COUNTED, "work", way) for way in ["off", "events", "auto", "vendor"]]
    cases += [(label, under, env, "counted", COUNTED, "work", "auto") for label, under, env in others()]
    cases += [("auto", (), {}, "inside", COUNTED.replace("work[5]", "inside"), "inside", "auto"),
              ("auto", (), {}, "attention", ATTENTION, "attend", "auto")]
    say("| observe | operation | passes | " + " | ".join(COUNTS) + " | SMs that reported |\n| --- |" + " --- |" * 8)
    for label, under, env, file, text, name, way in (case for case in cases if ARGS.only in f"{case[0]} {case[5]}"):
        words = ["--effort", "quick", "--observe", way, "--counters", name, "--ranks", "1"]
        code, record, text = run(written(f"{file}.aorta", text), *words, under=under, env=env, limit=20)
        if not record:
            say(f"| {label} | {name} | exit {code}: {text[-300:]!r} |")
            continue
        say(f"| {label} | timed by {method(record['variants'][0])[:80]} |")
        for one in record.get("counters", []):
            values = {count["metric"].split()[0]: count["value"] for count in one["counts"]}
            texts = ["–" if values.get(key) is None else f"{values[key] / 1e6:.1f} MB" if "bytes" in key else f"{values[key]:.1f} %"
                     for key in COUNTS.values()]
            say(f"| {label} | {one['name']} | {one['passes']} | " + " | ".join(texts) + f" | {len(one['units'])} |")
        for line in text.splitlines():
            if "counters of" in line or "shim" in line:
                say(f"| {label} | {name} | {line.strip()[:200]} |")


def shim(missing=False):
    """Builds the library of cupti_shim.c. Returns its folder and the environment that it needs."""
    folder = FOLDER / ("missing" if missing else "shim")
    folder.mkdir(exist_ok=True)
    words = ["cc", "-shared", "-fPIC", "-w", "-o", folder / "libcupti.so.13", HERE / "cupti_shim.c", "-ldl"]
    subprocess.run(words + (["-DMISSING"] if missing else []), check=True)
    listed = subprocess.run([ARGS.aorta, "devices", "--long"], capture_output=True, text=True).stdout
    found = re.search(r"(/\S*libcupti\.so\S*)", listed)
    path = found.group(1) if found else "libcupti.so.13"
    paths = os.environ.get("AORTA_LIBRARY_PATH", "")
    return folder, {"SHIM_REAL": path, "AORTA_LIBRARY_PATH": f"{folder}:{paths}" if paths else str(folder)}


def others():
    """Other profilers that are attached to the process: a name, a command before the program, an environment."""
    folder, env = shim()
    only = {"SHIM_REAL": env["SHIM_REAL"], "CUDA_INJECTION64_PATH": str(folder / "libcupti.so.13")}
    yield "another subscriber", (), only
    ncu = shutil.which("ncu") or next(iter(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/ncu"))), None)
    if ncu:
        yield "ncu", (ncu, "--kernel-name", "none_has_this_name"), {}
    nsys = shutil.which("nsys")
    if nsys:
        yield "nsys", (nsys, "profile", "-o", str(FOLDER / "nsys")), {}


# Faults.

FAULTS = """
stream a
stream b
buffer x, y, z: f32[1048576] = random(1)
buffer h: f32[1048576] in pinned
step {
  for i in 0..40 {
    on a { map(x * 2 -> y) }
    on b { map(x + 1 -> z) copy(z -> h) }
  }
}
"""


def faults():
    """What a run says with each fault of the library, and how it timed operations."""
    file = written("faults.aorta", FAULTS)
    say("| fault | exit | operations timed | by |\n| --- | --- | --- | --- |")
    _, env = shim()
    _, missing = shim(True)
    cases = [("none", (), {}), *((label, under, env) for label, under, env in others())]
    cases += [(f"shim: {name}", (), {**env, "SHIM": name}) for name in ["", "old", "privilege", "busy", "dropped", "lost"]]
    cases += [(f"shim: full after {count} buffers of 4 KiB", (), {**env, "SHIM": "full", "SHIM_BUFFERS": str(count)})
              for count in [0, 1, 20, 1000]]
    cases += [("shim: functions missing", (), missing)]
    for label, under, env in (case for case in cases if ARGS.only in case[0]):
        for way in ["auto"] + (["vendor"] if label == "shim: busy" else []):
            code, record, text = run(file, "--effort", "quick", "--observe", way, "--launch", "both", under=under, env=env, limit=20)
            if not record:
                say(f"| {label} | {code} | – | {text[-300:]!r} |")
                continue
            for variant in record["variants"]:
                timed = sum(one["time_ns"] is not None for one in variant["ranks"][0]["operations"])
                say(f"| {label}, {variant['launch']} | {code} | {timed} | {method(variant)} |")


# Agreement.

def drawn_serial(rng):
    """A program of one stream: tiny operations of each kind, and operations of a drawn duration."""
    gpu, up, down = 2.5e12, 55e9, 55e9
    lines, buffers = [], ["buffer big, bigger: f32[2147483648] = random(1)", "buffer h: f32[134217728] in pinned = random(2)",
                      "buffer rows, results: f32[200000, 4096] = random(3)"]

    def kernel(kind, n):
        return {"map": f"map(big[0..{n}] * 1.5 -> bigger[0..{n}])", "device": f"copy(big[0..{n}] -> bigger[0..{n}])",
                "up": f"copy(h[0..{min(n, 134217728)}] -> big[0..{min(n, 134217728)}])",
                "down": f"copy(big[0..{min(n, 134217728)}] -> h[0..{min(n, 134217728)}])"}[kind]

    kinds = ["map", "device", "up", "down"]
    lines += [f"tiny_{kind}_{i}: {kernel(kind, 64)}" for i in range(3) for kind in kinds]
    for i in range(40):
        seconds = 10 ** rng.uniform(-6, -2)
        kind = rng.choice([*kinds, "product", "softmax"])
        if kind == "product":
            n = max(16, min(16384, int((seconds * 2.5e14) ** (1 / 3)) // 16 * 16))
            lines.append(f"product_{i}: gemm(bf16[{n}, {n}], bf16[{n}, {n}])")
        elif kind == "softmax":
            rows = max(1, min(200000, int(seconds * gpu / 8 / 4096)))
            lines.append(f"softmax_{i}: softmax(rows[0..{rows}] -> results[0..{rows}])")
        else:
            rate = {"map": gpu / 8, "device": gpu / 8, "up": up / 4, "down": down / 4}[kind]
            n = max(16, min(2147483648, int(seconds * rate)))
            lines.append(f"{kind}_{i}: {kernel(kind, n)}")
    tiny, drawn = lines[:12], lines[12:]
    rng.shuffle(drawn)
    return "stream s\n" + "\n".join(buffers) + "\nstep {\n  on s {\n    " + "\n    ".join(tiny + drawn) + "\n  }\n}\n"


# Longest operations, in ns, from which `agree` learns what an event pair costs.
SHORT = 300_000


def times(record, variant=0):
    return {one["name"]: one["time_ns"] for one in record["variants"][variant]["ranks"][0]["operations"]
            if one["time_ns"] is not None}


def agree():
    """Times by events and by records on drawn programs of one stream."""
    rows, gaps = [], {}
    for seed in range(ARGS.seed, ARGS.seed + ARGS.programs):
        file = written("drawn.aorta", drawn_serial(random.Random(seed)))
        found = {}
        for way in ["vendor", "events"] * 3:
            code, record, text = run(file, "--effort", "quick", "--observe", way, "--config", "observed_iterations=15")
            if not record:
                say(f"seed {seed}, {way}: exit {code}: {text[-400:]}")
                return
            found.setdefault(way, []).append(times(record))
            facts = {name: value for name, value in record["device"]["facts"].items() if name.startswith("timer_")}
        for name in found["vendor"][0]:
            vendor, events = (statistics.median(one[name] for one in found[way]) for way in ["vendor", "events"])
            repeats = [[one[name] for one in found[way]] for way in found]
            spread = max(max(times) - min(times) for times in repeats)
            kind = name.split("_")[1] if name.startswith("tiny") else name.split("_")[0]
            if name.startswith("tiny"):
                gaps.setdefault(kind, []).append(events - vendor)
            else:
                rows.append((seed, name, kind, vendor, events, spread))
    # The cost of an event pair shows at short operations. Whether it explains the others is then tested on those.
    short = [abs(row[4] - row[3]) for row in rows if row[3] < SHORT] + [gap for all in gaps.values() for gap in all]
    cost = max(short)
    say(f"facts of the last run: {facts}")
    say("an event pair around an operation of 64 elements costs " + ", ".join(
        f"{kind} {min(all) / 1e3:.2f} to {max(all) / 1e3:.2f} µs" for kind, all in gaps.items()))
    say(f"an event pair around {len(short)} operations of less than {SHORT / 1e6} ms costs {min(short) / 1e3:.2f} to {cost / 1e3:.2f} µs, "
        f"median {statistics.median(short) / 1e3:.2f} µs, so it is valid for operations of {cost / 1e4:.3f} ms or more")
    say("| kind | operations | shorter | valid | repeats differ by more than 1 % | others outside 1 % | worst of the others |")
    say("| --- |" + " --- |" * 6)
    for kind in sorted({row[2] for row in rows}):
        own = [row for row in rows if row[2] == kind]
        valid = [row for row in own if 0.01 * row[3] >= cost]
        repeated = [row for row in valid if row[5] <= 0.01 * row[3]]
        bad = [row for row in repeated if abs(row[4] - row[3]) > 0.01 * row[3]]
        worst = max(repeated, key=lambda row: abs(row[4] / row[3] - 1), default=None)
        text = "–" if worst is None else f"{100 * (worst[4] / worst[3] - 1):+.2f} % of {worst[3] / 1e3:.0f} µs"
        say(f"| {kind} | {len(own)} | {len(own) - len(valid)} | {len(valid)} | {len(valid) - len(repeated)} | {len(bad)} | {text} |")
    for row in sorted(rows, key=lambda row: row[3]):
        say(f"  {row[0]} {row[1]}: records {row[3] / 1e3:.2f} µs, events {row[4] / 1e3:.2f}, difference {(row[4] - row[3]) / 1e3:+.2f}, "
            f"spread of repeats {row[5] / 1e3:.2f}")


# Order.

def drawn_graph(rng):
    """A program of several streams whose operations depend on each other through buffers."""
    streams, count = rng.randint(1, 6), rng.randint(20, 120)
    buffers = [(f"v{i}", 1 << rng.randint(8, 24)) for i in range(rng.randint(4, 12))]
    lines = [f"stream s{i}" for i in range(streams)]
    lines += [f"buffer {name}: f32[{size}] = random(1)" for name, size in buffers]
    lines += ["buffer h: f32[16777216] in pinned", "step {"]
    for i in range(count):
        (x, n), (y, m) = rng.sample(buffers, 2)
        n = min(n, m)
        what = rng.choice([f"map({x}[0..{n}] * 0.5 -> {y}[0..{n}])", f"copy({x}[0..{n}] -> {y}[0..{n}])",
                           f"copy({x}[0..{n}] -> h[0..{n}])", f"copy(h[0..{n}] -> {y}[0..{n}])",
                           f"gemm(bf16[{(s := 16 * rng.randint(1, 100))}, {s}], bf16[{s}, {s}])"])
        lines.append(f"  on s{rng.randrange(streams)} {{ o{i}: {what} }}")
    return "\n".join(lines + ["}"]) + "\n"


def order():
    """Times of operations that cannot be: overlaps on a stream, starts before a dependency's end, more busy than time."""
    total = {"stream": [0, 0, 0, 0, 0, 0, 0], "graph": [0, 0, 0, 0, 0, 0, 0]}
    programs = 0
    try:
        for seed in range(ARGS.seed, ARGS.seed + 4 * ARGS.programs):
            file = written("order.aorta", drawn_graph(random.Random(1000 + seed)))
            code, record, text = run(file, "--effort", "quick", "--observe", "vendor", "--launch", "both",
                                     "--config", "observed_iterations=1", limit=20)
            if not record:
                say(f"seed {seed}: exit {code}: {text[-300:]}")
                continue
            programs += 1
            for variant in record["variants"]:
                sums = total[variant["launch"]]
                rank = variant["ranks"][0]
                if not method(variant).startswith("CUPTI"):
                    sums[6] += 1
                    continue
                spans = {one["id"]: (one["start_ns"], one["end_ns"]) for one in rank["trace"]}
                lanes = {}
                for one in rank["operations"]:
                    start, end = spans[one["id"]]
                    for before in one["after"]:
                        if before in spans:
                            sums[0] += 1
                            early = spans[before][1] - start
                            sums[1] += early > 0
                            sums[2] = max(sums[2], early)
                    lane = lanes.setdefault(one["lane"], [])
                    if lane:
                        sums[3] += 1
                        sums[4] += lane[-1][1] > start
                        sums[2] = max(sums[2], lane[-1][1] - start)
                    lane.append((start, end))
                whole = rank["analysis"]["split"]["time_ns"]
                sums[5] += any(sum(end - start for start, end in lane) > whole for lane in lanes.values())
    finally:
        say(f"{programs} programs, seeds from {ARGS.seed}")
        say("| launched as | dependent pairs | early | worst ns | neighbours on a stream | overlapping | busier than the iteration | not by records |")
        say("| --- |" + " --- |" * 7)
        for launch, (pairs, early, worst, near, over, busy, none) in total.items():
            say(f"| {launch} | {pairs} | {early} | {worst} | {near} | {over} | {busy} | {none} |")


# Observer effect.

PRODUCTS = """
stream s[12]
buffer a, b: bf16[240, 256, 256] = random(1)
buffer c: bf16[240, 256, 256]
step { for i in 0..240 { on s[i % 12] { gemm(a[i], b[i] -> c[i]) } } }
"""


def effect():
    """Observer effect of each file by each method, as streams and as a graph."""
    say("| program | operations | launched as | headline | events | CUPTI | auto | auto by |\n| --- |" + " --- |" * 7)
    for name in ARGS.files:
        words = name.split()
        file = written("products.aorta", PRODUCTS) if words[0] == "products" else words[0]
        cells = {}
        for way in ["events", "vendor", "auto"] * ARGS.repeat:
            program = ARGS.aorta if way == "auto" else ARGS.main
            code, record, text = run(file, *words[1:], "--effort", "quick", "--observe", way, "--launch", "both",
                                     "--config", f"observed_iterations={ARGS.observed}", program=program, limit=ARGS.limit)
            if not record:
                said = text.strip().splitlines()[-1:] or [""]
                say(f"| {name} | exit {code} with {way}: {said[0][:120]} |")
                break
            for variant in record["variants"]:
                rank = variant["ranks"][0]
                cell = cells.setdefault(variant["launch"], {"operations": len(rank["operations"])})
                cell.setdefault("headline", []).append(variant["time"]["p50_ns"])
                cell.setdefault(way, []).append(rank["observer_effect"])
                cell[f"{way} by"] = method(variant)
        for launch, cell in cells.items():
            effects = [" ".join(map(percent, cell.get(way, []))) for way in ["events", "vendor", "auto"]]
            say(f"| {name} | {cell['operations']} | {launch} | {statistics.median(cell['headline']) / 1e3:.1f} µs | "
                + " | ".join(effects) + f" | {cell.get('auto by', '–')} |")


def blocks():
    """The effect of a kernel of one operation by its number of blocks."""
    say("| kernel | blocks | headline | events | CUPTI | CUPTI, ns per block |\n| --- |" + " --- |" * 5)
    for width in ARGS.widths:
        cells = {}
        for way in ["events", "vendor"] * 2:
            _, record, text = run("pools", "--set", f"width={width}", "--effort", "quick", "--observe", way,
                                  "--config", "observed_iterations=25", program=ARGS.main)
            if not record:
                say(text[-300:])
                return
            rank = record["variants"][0]["ranks"][0]
            cells.setdefault(way, []).append(rank["observer_effect"])
            cells["headline"] = record["variants"][0]["time"]["p50_ns"]
            launches = rank["operations"][0].get("launches", [])
            cells["blocks"] = launches[0]["kernel"]["grid"][0] if launches else cells.get("blocks", 0)
        cost = statistics.mean(cells["vendor"]) * cells["headline"]
        say(f"| pool, width {width} | {cells['blocks']} | {cells['headline'] / 1e3:.1f} µs | {' '.join(map(percent, cells['events']))} | "
            f"{' '.join(map(percent, cells['vendor']))} | {cost / max(1, cells['blocks']):.3f} |")


PARTS = {"counters": counters, "faults": faults, "agree": agree, "order": order, "effect": effect, "blocks": blocks}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--aorta", required=True, help="the program")
    parser.add_argument("--main", help="the program of the columns `events` and `CUPTI` of the part `effect`")
    parser.add_argument("--backend", default="cuda", help="`sim` to try the script")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--programs", type=int, default=2, help="drawn programs of `agree`; `order` has four times as many")
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--limit", type=float, default=30, help="seconds of one run of `effect`")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--observed", type=int, default=15)
    parser.add_argument("--files", default="products,pools", type=lambda text: text.split(","),
                        help="of `effect`: `products`, or names of shipped files, each with its options")
    parser.add_argument("--only", default="", help="a part of the label of the cases of `counters` and `faults`")
    parser.add_argument("--widths", default="64,512", type=lambda text: [int(one) for one in text.split(",")], help="of `blocks`")
    parser.parse_args(namespace=ARGS)
    ARGS.main = ARGS.main or ARGS.aorta
    for part in ARGS.parts:
        began = time.time()
        say(f"\n## {part}\n\n{PARTS[part].__doc__}\n")
        try:
            PARTS[part]()
        except Over:
            say("cut off: no time is left")
        say(f"\n{part}: {time.time() - began:.0f} s")
    shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
