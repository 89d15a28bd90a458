"""Cases of matrix products: shapes, what PyTorch computes for them, and the bound of the error."""
import math

import torch

from operation_case import Case, accumulated, shape


def gemm(dtype: str, quick: bool):
    mixed = [(dtype, "auto")]
    if dtype == "f32":
        mixed = [("f32", "auto"), ("f32", "f32"), ("f32", "tf32")]
    elif dtype in ("f16", "bf16"):
        mixed = [(dtype, "auto"), ("f32", "auto")]
    for out, compute in mixed:
        label = dtype if out == dtype else f"{dtype} to {out}"
        label += "" if compute == "auto" else f", compute {compute}"

        def case(a, b, c, depth, expect, call="a, b -> c", options=""):
            cut_off = dtype in ("f16", "bf16") or compute == "tf32"
            bound = accumulated(out, 1 + (depth / 4 if cut_off else math.sqrt(depth)))
            bound += 2 * 2.0**-10 if compute == "tf32" else 0.0
            buffers = {"a": dtype + shape(*a), "b": dtype + shape(*b), "c": f"{out}{shape(*c)} = zeros"}
            options += "" if compute == "auto" else f", compute: {compute}"
            return Case("gemm", label, buffers, f"gemm({call}{options})", lambda t: {"c": expect(t)}, bound)

        def sliced(t):
            c = torch.zeros_like(t.c)
            c[2:19, 4:37] = t.a[3:20, 5:70] @ t.b[5:70, 1:34]
            return c

        plain = [(1, 1, 1), (1, 257, 129), (257, 1, 64), (17, 33, 65), (128, 128, 128), (127, 251, 509)]
        plain += [] if quick else [(1000, 1000, 1000), (2048, 2048, 2048), (4096, 1024, 512)]
        for m, n, k in plain:
            yield case((m, k), (k, n), (m, n), k, lambda t: t.a @ t.b)
        yield case((65, 17), (65, 33), (17, 33), 65, lambda t: t.a.T @ t.b, options=", transpose_a: true")
        yield case((17, 65), (33, 65), (17, 33), 65, lambda t: t.a @ t.b.T, options=", transpose_b: true")
        yield case((64, 96), (128, 64), (96, 128), 64, lambda t: t.a.T @ t.b.T,
                   options=", transpose_a: true, transpose_b: true")
        yield case((7, 33, 65), (7, 65, 17), (7, 33, 17), 65, lambda t: t.a @ t.b)
        yield case((2, 3, 64, 128), (128, 32), (2, 3, 64, 32), 128, lambda t: t.a @ t.b)
        yield case((31, 40), (5, 40, 24), (5, 31, 24), 40, lambda t: t.a @ t.b)
        yield case((40, 72), (72, 48), (40, 48), 65, sliced, "a[3..20, 5..70], b[5..70, 1..34] -> c[2..19, 4..37]")
        yield case((16, 4, 64), (64, 32), (16, 2, 32), 64, lambda t: t.a[:, 1:3] @ t.b, "a[.., 1..3, ..], b -> c")
        yield case((6, 48, 64), (64, 32), (6, 48, 32), 64,
                   lambda t: torch.cat([torch.zeros_like(t.c[:2]), t.a[2:] @ t.b]), "a[2..6], b -> c[2..6]")


def scaled_gemm(dtype: str, quick: bool):
    """Products of 8-bit floats, with results of this type."""
    if dtype == "f64":
        return
    for m, n, k in [(1, 32, 64), (17, 48, 128), (128, 128, 512)] + ([] if quick else [(1000, 1024, 2048)]):
        for a, b in [("e4m3", "e4m3"), ("e5m2", "e4m3")]:
            for rows, columns in [(1, 1), (m, n)]:
                # Hopper's matrix units keep 13 bits of a partial sum.
                bound = accumulated(dtype, 1 + k / 4) + 8 * 2.0**-13
                buffers = {"a": f"{a}{shape(m, k)}", "b": f"{b}{shape(n, k)}", "s": f"f32{shape(rows)}",
                           "v": f"f32{shape(columns)}", "c": f"{dtype}{shape(m, n)} = zeros"}
                yield Case("scaled_gemm", f"{a}, {b} to {dtype}", buffers, "scaled_gemm(a, b, s, v -> c, transpose_b: true)",
                           lambda t: {"c": (t.a * t.s[:, None]) @ (t.b * t.v[:, None]).T}, bound)


def grouped_gemm(dtype: str, quick: bool):
    """Groups whose ends are any numbers: some descend, and some are beyond the rows."""
    def parts(t, length):
        begin = 0
        for group, end in enumerate(t["e"].tolist()):
            end = max(begin, min(end, length))
            yield group, slice(begin, end)
            begin = end

    def in_rows(t, a, w):
        c = torch.zeros_like(t.c)
        for group, part in parts(t, len(a)):
            c[part] = a[part] @ w[group]
        return c

    def in_depth(t, a, b):
        return torch.stack([a[:, part] @ b[part] for _, part in parts(t, len(b))])

    sizes = [(3, 70, 40, 24), (1, 33, 65, 17), (17, 200, 72, 136), (40, 90, 129, 33), (8, 90, 64, 512)]
    sizes += [] if quick else [(4, 1200, 520, 4608), (256, 300, 256, 256)]
    for groups, rows, k, n in sizes:
        bound = accumulated(dtype, 1 + max(rows, k) / 4)
        ends = {"e": f"i32{shape(groups)}"}
        a = {"a": dtype + shape(rows, k), "c": f"{dtype}{shape(rows, n)} = zeros", **ends}
        yield Case("grouped_gemm", dtype, {**a, "b": dtype + shape(groups, k, n)}, "grouped_gemm(a, b, e -> c)",
                   lambda t: {"c": in_rows(t, t.a, t.b)}, bound)
        yield Case("grouped_gemm", dtype, {**a, "b": dtype + shape(groups, n, k)}, "grouped_gemm(a, b, e -> c, transpose_b: true)",
                   lambda t: {"c": in_rows(t, t.a, t.b.transpose(1, 2))}, bound)
        depth = {"a": dtype + shape(rows, k), "b": dtype + shape(rows, n), "c": f"{dtype}{shape(groups, k, n)} = zeros", **ends}
        yield Case("grouped_gemm", dtype, depth, "grouped_gemm(a, b, e -> c, transpose_a: true)",
                   lambda t: {"c": in_depth(t, t.a.T, t.b)}, bound)
