#!/usr/bin/env python3
"""Matrix products with all of their options, drawn by seed, compared with the CPU's on a device.

    python3 benches/h200/random_products.py --aorta target/release/aorta --seed 1 [--products 160] [--backend cuda]

Each product is `gemm` of floating-point numbers, of 8-bit floats or of `i8`, `scaled_gemm` or `grouped_gemm`, with drawn sizes, types,
transposes, gaps between rows, batches, bias, epilogue and `accumulate`. `--verify` compares each with its result in float64.
The last lines name the products whose results are outside of their bounds.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

FUNCTIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
GATED = ("swiglu", "geglu", "geglu_tanh", "reglu")
SIZES = (1, 2, 3, 7, 16, 24, 33, 64, 97, 128, 200, 256, 384, 513, 1024)


class File:
    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.buffers, self.calls, self.count = [], [], 0

    def buffer(self, dtype, dims, rest=""):
        self.count += 1
        name = f"t{self.count}"
        self.buffers.append(f"buffer {name}: {dtype}[{', '.join(map(str, dims))}]{rest}")
        return name

    def matrix(self, dtype, lead, rows, columns, gaps=True):
        """A matrix or a batch of them, whose rows may have gaps between them."""
        more = self.draw.choice((0, 0, 8, 16, 3)) if gaps else 0
        name = self.buffer(dtype, [*lead, rows, columns + more])
        return f"{name}[{'.., ' * (len(lead) + 1)}0..{columns}]" if more else name

    def gemm(self):
        draw = self.draw
        dtype = draw.choice(("bf16", "bf16", "f16", "f16", "f32", "f64"))
        out = draw.choice((dtype, "f32")) if dtype in ("bf16", "f16") else dtype
        m, n, k = (draw.choice(SIZES) for _ in range(3))
        k *= draw.choice((1, 1, 1, 8))
        lead = [draw.randint(1, 3) for _ in range(draw.choice((0, 0, 1, 2)))]
        turned = [draw.random() < 0.4 for _ in range(2)]
        a = self.matrix(dtype, lead, *((k, m) if turned[0] else (m, k)))
        gate = draw.choice(GATED) if draw.random() < 0.2 else None
        width, n = n, 2 * n if gate else n
        b = self.matrix(dtype, draw.choice((lead, [])), *((n, k) if turned[1] else (k, n)))
        bias = f", {self.buffer(out, [n])}" if draw.random() < 0.6 else ""
        c = self.matrix(out, lead, m, width)
        options = [f"epilogue: {gate or draw.choice(FUNCTIONS)}"]
        options += [f"accumulate: {str(draw.random() < 0.4).lower()}"] if not gate else []
        options += [f"transpose_{side}: true" for side, turn in zip("ab", turned) if turn]
        options += ["compute: tf32"] if dtype == "f32" and draw.random() < 0.3 else []
        self.calls.append(f"gemm({a}, {b}{bias} -> {c}, {', '.join(options)})")

    def narrow(self):
        draw = self.draw
        m, n, k = draw.choice(SIZES), 16 * draw.randint(1, 64), 16 * draw.randint(1, 160)
        out = draw.choice(("bf16", "bf16", "f16", "f32"))
        types = draw.choice((("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")))
        a, b = (self.buffer(dtype, dims) for dtype, dims in zip(types, ([m, k], [n, k])))
        bias = f", {self.buffer(out, [n])}" if draw.random() < 0.4 else ""
        c = self.buffer(out, [m, n])
        options = f"transpose_b: true, epilogue: {draw.choice(FUNCTIONS)}, accumulate: {str(draw.random() < 0.3).lower()}"
        form = draw.choice(("none", "one", "each", "blocks"))
        if form == "blocks" and types == ("e4m3", "e4m3"):
            m, n, k = 4 * m, max(128, n // 128 * 128), max(512, k // 512 * 512)
            a, b, c = self.buffer("e4m3", [m, k]), self.buffer("e4m3", [n, k]), self.buffer("bf16", [m, n])
            s, v = self.buffer("f32", [k // 128, m]), self.buffer("f32", [n // 128, k // 128])
            self.calls.append(f"scaled_gemm({a}, {b}, {s}, {v} -> {c}, transpose_b: true)")
            return
        rows, columns = (m, n) if form == "each" else (1, 1)
        factors = "" if form == "none" else f", {self.buffer('f32', [rows])}, {self.buffer('f32', [columns])}"
        name = "gemm" if form == "none" else "scaled_gemm"
        self.calls.append(f"{name}({a}, {b}{factors}{bias} -> {c}, {options})")

    def whole(self):
        draw = self.draw
        m, n, k = draw.choice(SIZES), 16 * draw.randint(1, 64), 16 * draw.randint(1, 160)
        a, b, c = self.buffer("i8", [m, k]), self.buffer("i8", [n, k]), self.buffer("i32", [m, n])
        self.calls.append(f"gemm({a}, {b} -> {c}, transpose_b: true, accumulate: {str(draw.random() < 0.5).lower()})")

    def grouped(self):
        draw = self.draw
        dtype = draw.choice(("bf16", "bf16", "f16", "f32", "f64"))
        out = draw.choice((dtype, "f32")) if dtype in ("bf16", "f16") else dtype
        groups, in_depth = draw.choice((1, 2, 5, 16, 60)), draw.random() < 0.5
        deep = draw.random() < 0.4
        length = draw.choice((50, 333, 1000)) * (12 if deep and in_depth else 1)
        depth, columns = draw.choice((8, 40, 129, 512)) * (12 if deep and not in_depth else 1), draw.choice((33, 64, 136, 512))
        numbers, ends = self.buffer("i32", [groups], " = iota"), self.buffer("i32", [groups])
        self.calls.append(f"map(floor({length} * pow(({numbers} + 1) / {groups}, {draw.choice((0.5, 1, 2))})) -> {ends})")
        turned = [draw.random() < 0.5 for _ in range(2)]
        sizes = lambda rows, columns, turn: [columns, rows] if turn else [rows, columns]
        if in_depth:
            rows = draw.choice((24, 136, 300))
            a, b = self.buffer(dtype, sizes(rows, length, turned[0])), self.buffer(dtype, sizes(length, columns, turned[1]))
            c = self.buffer(out, [groups, rows, columns])
        else:
            a, b = self.buffer(dtype, sizes(length, depth, turned[0])), self.buffer(dtype, [groups, *sizes(depth, columns, turned[1])])
            c = self.buffer(out, [length, columns])
        turns = ", ".join(f"transpose_{side}: {str(turn).lower()}" for side, turn in zip("ab", turned))
        self.calls.append(f"grouped_gemm({a}, {b}, {ends} -> {c}, {turns}, epilogue: {draw.choice(FUNCTIONS)})")

    def text(self, products):
        for _ in range(products):
            self.draw.choice((self.gemm, self.gemm, self.gemm, self.narrow, self.narrow, self.whole, self.grouped))()
        lines = "\n".join(f"  p{number}: {call}" for number, call in enumerate(self.calls))
        return "\n".join(self.buffers) + f"\nstream main\nstep {{ on main {{\n{lines}\n}} }}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--products", type=int, default=160)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--file", help="where the drawn file is kept")
    parser.add_argument("--log", help="where the whole output goes")
    args = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(args.file or pathlib.Path(folder.name) / "products.aorta")
    text = File(args.seed).text(args.products)
    path.write_text(text)
    command = [args.aorta, "exec", str(path), "--backend", args.backend, "--verify", "--iterations", "3", "--warmup", "1",
               "--timeout", "300s", "--config", "observed_iterations=0"]
    done = subprocess.run(command, capture_output=True, text=True)
    output = done.stdout + done.stderr
    told = [line for line in output.splitlines() if any(word in line for word in ("verif", "wrong", "error", "outside", "bound"))]
    if args.log:
        pathlib.Path(args.log).write_text(output)
    print(f"seed {args.seed}: {args.products} products, exit code {done.returncode}")
    print("\n".join(told[-30:] if told else output.splitlines()[-30:]))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
