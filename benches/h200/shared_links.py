#!/usr/bin/env python3
"""Memory and links shared by operations: kernels that reach pinned memory, copies both ways, collectives side by side.

    python3 benches/h200/shared_links.py --aorta target/release/aorta [--seed 1] [--cases 40] [--ranks 2] [--markdown FILE]

Each case is a small program, written here, that runs on the device and on the simulator. The first table has fixed
sizes and finds rates; the second draws operations, sizes and companions by seed, so that nobody has chosen them. A
ratio is the simulated time over the measured one; 1 is right. Rates count bytes over the link in one direction.
"""
import argparse
import json
import math
import pathlib
import random
import subprocess
import tempfile

MIB = 1 << 20


class Case:
    """A program: declarations, one list of operations for each stream, and the bytes over the links it is rated by."""

    def __init__(self, name, declarations, streams, moved=0, ranks=1):
        self.name, self.declarations, self.streams, self.moved, self.ranks = name, declarations, streams, moved, ranks

    def text(self):
        lines = [f"stream s{index}" for index in range(len(self.streams))]
        lines += self.declarations + ["step {"]
        for index, operations in enumerate(self.streams):
            lines += [f"  on s{index} {{ {operation} }}" for operation in operations]
        return "\n".join(lines + ["}"]) + "\n"


def buffers(prefix, bytes_, space=""):
    place = f" in {space}" if space else ""
    return f"buffer {prefix}: f32[{max(1, bytes_ // 4096)}, 1024]{place}"


def host_kernel(kind, bytes_, tag):
    """One operation by a kernel that reaches pinned memory: its declarations, its text, its bytes over the link."""
    rows = max(1, bytes_ // 4096)
    bytes_ = rows * 4096
    h, d = f"h{tag}", f"d{tag}"
    both = [buffers(h, bytes_, "pinned"), buffers(d, bytes_)]
    if kind == "map from pinned":
        return both, f"map({h} * 2 -> {d})", bytes_
    if kind == "map to pinned":
        return both, f"map({d} * 2 -> {h})", bytes_
    if kind == "copy from pinned by kernel":
        return both, f"copy({h} -> {d}, via: kernel)", bytes_
    if kind == "copy to pinned by kernel":
        return both, f"copy({d} -> {h}, via: kernel)", bytes_
    if kind == "softmax from pinned":
        return both, f"softmax({h} -> {d})", bytes_
    if kind == "gather from pinned":
        index = f"buffer i{tag}: i32[{rows}] = iota"
        return both + [index], f"gather({h}, i{tag} -> {d})", bytes_
    if kind == "engine to device":
        return both, f"copy({h} -> {d}, via: dma)", bytes_
    if kind == "engine to host":
        return both, f"copy({d} -> {h}, via: dma)", bytes_
    if kind == "gemm from pinned":
        # A thin product reads its matrix once.
        declarations = [f"buffer {h}: bf16[{max(16, bytes_ // 8192)}, 4096] in pinned", f"buffer {d}: bf16[4096, 16]"]
        return declarations, f"gemm({h}, {d})", max(16, bytes_ // 8192) * 8192
    if kind == "square gemm from pinned":
        n = max(128, int(math.sqrt(bytes_ / 2)) // 64 * 64)
        return [f"buffer {h}: bf16[{n}, {n}] in pinned", f"buffer {d}: bf16[{n}, {n}]"], f"gemm({h}, {d})", 2 * n * n
    raise ValueError(kind)


HOST_KINDS = ["map from pinned", "map to pinned", "copy from pinned by kernel", "copy to pinned by kernel",
              "softmax from pinned", "gather from pinned", "gemm from pinned", "square gemm from pinned",
              "engine to device", "engine to host"]


def device_work(kind, bytes_, tag):
    rows = max(1, bytes_ // 4096)
    if kind == "map on device":
        return [buffers(f"m{tag}", rows * 4096), buffers(f"n{tag}", rows * 4096)], f"map(m{tag} * 2 -> n{tag})", 0
    n = max(256, int(math.sqrt(bytes_ / 2)) // 64 * 64)
    return [], f"gemm(bf16[{n}, {n}], bf16[{n}, {n}])", 0


def peer(kind, bytes_, tag):
    rows = max(1, bytes_ // 4096)
    x, y = f"x{tag}", f"y{tag}"
    one = [f"buffer {x}: f32[{rows}, 1024]"]
    two = one + [f"buffer {y}: f32[{rows}, 1024]"]
    bytes_ = rows * 4096
    if kind == "all_reduce":
        return one, f"all_reduce({x})", bytes_
    if kind == "all_gather":
        return one + [f"buffer {y}: f32[world, {rows}, 1024]"], f"all_gather({x} -> {y})", bytes_
    if kind == "reduce_scatter":
        return one + [f"buffer {y}: f32[world, {rows}, 1024]"], f"reduce_scatter({y} -> {x})", bytes_
    if kind == "all_to_all":
        names = [f"buffer {x}: f32[world, {rows}, 1024]", f"buffer {y}: f32[world, {rows}, 1024]"]
        return names, f"all_to_all({x} -> {y})", bytes_
    if kind == "exchange":
        text = f"group {{ send({x}, to: (rank + 1) % world)  recv(-> {y}, from: (rank + world - 1) % world) }}"
        return two, text, bytes_
    if kind == "send one way":
        return two, f"if rank == 0 {{ send({x}, to: 1) }} else {{ recv(-> {y}, from: 0) }}", bytes_
    if kind == "copy at, ring":
        return two, f"copy({x} -> {y} at (rank + 1) % world)", bytes_
    if kind == "copy at, ring, by kernel":
        return two, f"copy({x} -> {y} at (rank + 1) % world, via: kernel)", bytes_
    raise ValueError(kind)


PEER_KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "exchange", "send one way",
              "copy at, ring", "copy at, ring, by kernel"]


def together(name, parts, ranks=1, repeat=1):
    declarations = [line for declared, _, _ in parts for line in declared]
    return Case(name, declarations, [[operation] * repeat for _, operation, _ in parts], sum(part[2] for part in parts), ranks)


def fixed(ranks):
    cases = []
    for kind in HOST_KINDS:
        for size in (MIB // 4, 64 * MIB):
            cases.append(together(f"{kind}, {size / MIB:g} MiB", [host_kernel(kind, size, 0)]))
    big = 64 * MIB
    for one, other in (("engine to device", "engine to host"), ("copy from pinned by kernel", "copy to pinned by kernel"),
                       ("copy from pinned by kernel", "engine to host"), ("copy to pinned by kernel", "engine to device"),
                       ("copy from pinned by kernel", "engine to device"), ("copy to pinned by kernel", "engine to host"),
                       ("map from pinned", "copy from pinned by kernel")):
        cases.append(together(f"{one} beside {other}, 64 MiB each", [host_kernel(one, big, 0), host_kernel(other, big, 1)]))
    cases.append(together("map from pinned beside map on device, 64 MiB, 1 GiB",
                          [host_kernel("map from pinned", big, 0), device_work("map on device", 1024 * MIB, 1)]))
    if ranks > 1:
        for kind in PEER_KINDS:
            for size in (4 * MIB, 256 * MIB):
                cases.append(together(f"{kind}, {size / MIB:g} MiB", [peer(kind, size, 0)], ranks))
        for one, other in (("all_gather", "all_gather"), ("all_reduce", "all_reduce"), ("all_gather", "reduce_scatter"),
                           ("exchange", "exchange"), ("exchange", "all_reduce"), ("copy at, ring", "copy at, ring"),
                           ("copy at, ring", "all_gather"), ("copy at, ring", "exchange")):
            cases.append(together(f"{one} beside {other}, 256 MiB each",
                                  [peer(one, 256 * MIB, 0), peer(other, 256 * MIB, 1)], ranks))
        three = [peer("all_gather", 128 * MIB, tag) for tag in range(3)]
        cases.append(together("three all_gathers, 128 MiB each", three, ranks))
    return cases


def drawn(seed, count, ranks):
    """Programs of one to four operations side by side, with sizes spread evenly in their logarithm."""
    chance = random.Random(seed)
    cases = []
    for number in range(count):
        several = ranks > 1 and chance.random() < 0.5
        size = lambda: int(math.exp(chance.uniform(math.log(65536), math.log(256 * MIB))))
        parts = []
        for tag in range(chance.randint(1, 4)):
            if chance.random() < 0.25:
                parts.append(device_work(chance.choice(["map on device", "product"]), size(), tag))
            elif several:
                parts.append(peer(chance.choice(PEER_KINDS), size(), tag))
            else:
                parts.append(host_kernel(chance.choice(HOST_KINDS), size(), tag))
        name = " + ".join(operation for _, operation, _ in parts)
        cases.append(together(f"{number}: {name}", parts, ranks if several else 1))
    return cases


def run(args, case, backend, folder):
    file, record = folder / "case.aorta", folder / "record.json"
    file.write_text(case.text())
    command = [args.aorta, "exec", str(file), "--backend", backend, "--ranks", str(case.ranks), "--warmup", "5",
               "--iterations", "15", "--config", "observed_iterations=0", "--json", str(record)]
    command += ["--config", f"profile={args.profile}"] if backend == "sim" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(f"{case.name}: {backend} failed\n{done.stderr}\n{case.text()}")
        return None
    return json.loads(record.read_text())["variants"][0]["time"]["p50_ns"]


def table(args, title, cases, known, folder):
    lines = [f"### {title}", "", "| operations side by side | ranks | measured, µs | GB/s | simulated, µs | ratio |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    ratios = []
    for case in cases:
        measured = known.get(case.text())
        if measured is None and not args.simulate_only:
            known[case.text()] = measured = run(args, case, args.backend, folder)
        simulated = run(args, case, "sim", folder)
        cell = lambda value, form: "–" if value is None else format(value, form)
        rate = case.moved / measured if measured and case.moved else None
        ratio = simulated / measured if measured and simulated else None
        ratios += [ratio] if ratio else []
        lines.append(f"| {case.name} | {case.ranks} | {cell(measured and measured / 1e3, '.1f')} | {cell(rate, '.1f')} | "
                     f"{cell(simulated and simulated / 1e3, '.1f')} | {cell(ratio, '.2f')} |")
    if ratios:
        errors = sorted(abs(ratio - 1) for ratio in ratios)
        lines += ["", f"{len(ratios)} cases: error of the median case {errors[len(errors) // 2]:.0%}, of nine in ten at most "
                      f"{errors[int(0.9 * (len(errors) - 1))]:.0%}, least and largest ratio {min(ratios):.2f}, {max(ratios):.2f}"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--profile", default="h200")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--simulate-only", action="store_true", help="no device: only the simulated column")
    parser.add_argument("--measured", type=pathlib.Path, help="keep measured times here; where a program is there, use them")
    parser.add_argument("--markdown", type=pathlib.Path)
    args = parser.parse_args()
    known = json.loads(args.measured.read_text()) if args.measured and args.measured.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = table(args, "Fixed sizes", fixed(args.ranks), known, folder)
        if args.cases:
            text += "\n" + table(args, f"Drawn by seed {args.seed}", drawn(args.seed, args.cases, args.ranks), known, folder)
    if args.measured:
        args.measured.write_text(json.dumps(known, indent=1) + "\n")
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
