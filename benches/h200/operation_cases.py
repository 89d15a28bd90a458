"""Cases of each operation: shapes, what PyTorch computes for them, and the bound of the error.

`operations.py` runs them, and explains the bounds.
"""
import math

import numpy
import torch

from attention_cases import attention
from operation_case import Case, DEVICE, FLOATS, TORCH, Tensors, accumulated, shape, store
from product_cases import gemm, grouped_gemm, scaled_gemm
from window_cases import windows

# --- Element by element ------------------------------------------------------------------------------------------

def gelu(x):
    return torch.nn.functional.gelu(x)


# Expressions that round, with what PyTorch says to them.
ROUNDED = [
    ("x * 1.5 + 0.5", lambda x, y: x * 1.5 + 0.5),
    ("x * y - x / (abs(y) + 1)", lambda x, y: x * y - x / (y.abs() + 1)),
    ("exp(x)", lambda x, y: x.exp()),
    ("log(abs(x) + 1) + log2(abs(y) + 2)", lambda x, y: (x.abs() + 1).log() + (y.abs() + 2).log2()),
    ("sqrt(abs(x)) + rsqrt(abs(y) + 1)", lambda x, y: x.abs().sqrt() + (y.abs() + 1).rsqrt()),
    ("sin(x) * cos(y)", lambda x, y: x.sin() * y.cos()),
    ("tanh(x) + erf(y)", lambda x, y: x.tanh() + y.erf()),
    ("gelu(x)", lambda x, y: gelu(x)),
    ("silu(x) + sigmoid(y)", lambda x, y: torch.nn.functional.silu(x) + y.sigmoid()),
    ("pow(abs(x) + 0.5, y)", lambda x, y: (x.abs() + 0.5).pow(y)),
]
# Expressions whose value is one of the operands', or a small whole number.
EXACT = [
    ("relu(x)", lambda x, y: x.relu()),
    ("max(x, y)", torch.maximum),
    ("min(max(x, -0.5), 0.5)", lambda x, y: x.clamp(-0.5, 0.5)),
    ("floor(x) + ceil(y)", lambda x, y: x.floor() + y.ceil()),
    ("round(x * 4)", lambda x, y: (x * 4).round()),
    ("-abs(x)", lambda x, y: -x.abs()),
    # Adding zero makes PyTorch's -0 the 0 that `x - 3 * floor(x / 3)` is.
    ("floor(x) % 3", lambda x, y: x.floor().remainder(3) + 0.0),
    ("if x > 0 and not (y < 0.25) { x } else { y }", lambda x, y: torch.where((x > 0) & (y >= 0.25), x, y)),
    ("(x <= y) + (x != y) + (x == y or y >= 0)",
     lambda x, y: (x <= y).double() + (x != y).double() + ((x == y) | (y >= 0)).double()),
]


def elementwise(dtype: str, quick: bool):
    sizes = [(1,), (33, 65), (100_003,)]
    for expression, function in ROUNDED + EXACT:
        rounded = (expression, function) in ROUNDED
        for dims in sizes + ([] if quick or expression != "gelu(x)" else [(2048, 2048)]):
            buffers = {name: dtype + shape(*dims) for name in "xyz"}
            if rounded:
                yield Case("map", dtype, buffers, f"map({expression} -> z)",
                           lambda t, f=function: {"z": f(t.x, t.y)}, accumulated(dtype, 16))
            else:
                yield Case("map", f"{dtype}, exact", buffers, f"map({expression} -> z)",
                           lambda t, f=function: {"z": store(f(t.x, t.y), dtype)})
    # Broadcasts, slices with gaps, slices that begin off any boundary, the output among the inputs' types.
    layouts = [
        ({"x": (9, 65), "y": (1, 65), "z": (9, 65)}, "map(x * 0.5 + y -> z)", lambda t: t.x * 0.5 + t.y),
        ({"x": (4, 9, 1), "y": (65,), "z": (4, 9, 65)}, "map(x * y -> z)", lambda t: t.x * t.y),
        ({"x": (9, 65), "y": (9, 3, 64), "z": (9, 64)}, "map(x[.., 1..65] * y[.., 1] -> z)",
         lambda t: t.x[:, 1:] * t.y[:, 1]),
        ({"x": (1001,), "y": (1003,), "z": (1000,)}, "map(x[1..1001] + y[3..1003] * 0.25 -> z)",
         lambda t: t.x[1:] + t.y[3:] * 0.25),
    ]
    for dims, text, function in layouts:
        buffers = {name: dtype + shape(*sizes) for name, sizes in dims.items()}
        yield Case("map", dtype, buffers, text, lambda t, f=function: {"z": f(t)}, accumulated(dtype, 16))
    # Several outputs in one pass: in a type of their own, in place, and where packs of different widths are written.
    for dims in [(1,), (33, 65), (1_048_576,)]:
        buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims[-1:]), "s": dtype + shape(*dims), "d": "f64" + shape(*dims)}
        yield Case("map", dtype, buffers, "map(x + y, x * y -> s, d)", lambda t: {"s": t.x + t.y, "d": t.x * t.y},
                   accumulated(dtype, 16))
    wider = "f64" if dtype == "f64" else "f32"
    yield Case("map", dtype, {"x": f"{dtype}[77, 31]", "y": f"{wider}[77, 31]", "z": f"{wider}[77, 31]"},
               "map(tanh(x) * y -> z)", lambda t: {"z": t.x.tanh() * t.y}, accumulated(wider, 16))
    for dims in [(1,), (31, 33), (65_537,)]:
        yield Case("fill", dtype, {"x": f"{dtype}{shape(*dims)}"}, "fill(0.1 -> x)",
                   lambda t: {"x": store(torch.full_like(t.x, 0.1), dtype)})
    yield Case("fill", dtype, {"x": f"{dtype}[5, 4, 33] = zeros"}, "fill(-2.75 -> x[.., 1])", lambda t: {
        "x": torch.stack([torch.full_like(t["x"][:, 0], -2.75 if part == 1 else 0.0) for part in range(4)], 1)})


def rotated(t: Tensors):
    first, second = t.x.chunk(2, -1)
    return torch.cat((first * t.c - second * t.s, second * t.c + first * t.s), -1)


PHILOX = (0xd2511f53, 0xcd9e8d57, 0x9e3779b9, 0xbb67ae85)


def uniform(count: int, seed: int) -> torch.Tensor:
    """Draws of Philox4x32-10: element i is word i % 4 of block i / 4, as a multiple of 2^-24."""
    low, words = (1 << 32) - 1, numpy.zeros((4, (count + 3) // 4), dtype=numpy.uint64)
    words[0] = numpy.arange(words.shape[1])
    keys = [seed & low, seed >> 32]
    for _ in range(10):
        a, b = words[0] * numpy.uint64(PHILOX[0]), words[2] * numpy.uint64(PHILOX[1])
        mask, shift = numpy.uint64(low), numpy.uint64(32)
        words = numpy.stack([(b >> shift) ^ words[1] ^ numpy.uint64(keys[0]), b & mask,
                             (a >> shift) ^ words[3] ^ numpy.uint64(keys[1]), a & mask])
        keys = [(keys[0] + PHILOX[2]) & low, (keys[1] + PHILOX[3]) & low]
    return torch.from_numpy((words.T.reshape(-1)[:count] >> numpy.uint64(8)).astype(numpy.float64) / 2**24).to(DEVICE)


def by_name(dtype: str, quick: bool):
    for dims in [(2,), (5, 66), (2, 3, 17, 64)] + ([] if quick else [(8, 16, 512, 128)]):
        angles = shape(*dims[-2:-1], dims[-1] // 2)
        buffers = {"x": dtype + shape(*dims), "c": dtype + angles, "s": dtype + angles, "y": dtype + shape(*dims)}
        yield Case("rope", dtype, buffers, "rope(x, c, s -> y)", lambda t: {"y": rotated(t)}, accumulated(dtype, 16))
    for dims in [(1,), (33, 65), (100_003,)] + ([] if quick else [(1024, 4096)]):
        buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims)}
        yield Case("dropout", dtype, buffers, "dropout(x, p: 0.25, seed: 12345678901 -> y)", lambda t: {
            "y": torch.where(uniform(t.x.numel(), 12345678901).reshape(t.x.shape) < 0.25, 0.0, t.x / 0.75)}, accumulated(dtype, 16))
        # What is updated begins with ones, which the expected values know.
        buffers = {"g": dtype + shape(*dims), **{name: f"{dtype}{shape(*dims)} = ones" for name in "wmv"}}
        setup = "map(1, 1, 1 -> w, m, v)\n  "

        def adamw(t):
            m, v = 0.9 + 0.1 * t.g, 0.999 + 0.001 * t.g * t.g
            step = m / (1 - 0.9**3) / ((v / (1 - 0.999**3)).sqrt() + 1e-8)
            return {"w": 1 - 0.01 * 0.01 - 0.01 * step, "m": m, "v": v}

        yield Case("adamw", dtype, buffers, setup + "adamw(g -> w, m, v, lr: 0.01, step: 3)", adamw, accumulated(dtype, 32))
        buffers = {"g": dtype + shape(*dims), "w": dtype + shape(*dims), "v": dtype + shape(*dims)}
        yield Case("sgd", dtype, buffers, "map(1, 1 -> w, v)\n  sgd(g -> w, v, lr: 0.1, momentum: 0.9, weight_decay: 0.5)",
                   lambda t: {"w": 1 - 0.1 * (0.9 + t.g + 0.5), "v": 0.9 + t.g + 0.5}, accumulated(dtype, 32))


def whole_numbers(_: str, quick: bool):
    for dims in [(1,), (33, 65), (100_003,)]:
        buffers = {name: "i32" + shape(*dims) for name in "xyz"}
        yield Case("map", "i32", buffers, "map((x - 50) * 1000003 + y % 7 -> z)",
                   lambda t: {"z": store((t.x - 50) * 1000003 + t.y.remainder(7), "i32")})
        yield Case("fill", "i32", {"x": "i32" + shape(*dims)}, "fill(-7 -> x)",
                   lambda t: {"x": torch.full_like(t["x"], -7)})
    # A deviation that takes integers beyond their range, and f16 to infinity.
    wide = {"f64": "random(1, 1e10)", "f32": "random(1, 1e5)", "f16": "random(1, 1000)", "bf16": "random(1, 100)"}
    for source in TORCH:
        for target in TORCH:
            if source != target:
                for dims in [(1,), (33, 65)] + ([] if quick else [(1_000_003,)]):
                    initial = wide.get(source, "random(1)")
                    buffers = {"x": f"{source}{shape(*dims)} = {initial}", "y": f"{target}{shape(*dims)}"}
                    yield Case("cast", "all 56 pairs", buffers, "cast(x -> y)",
                               lambda t, target=target: {"y": store(t.x, target)})


# --- Row by row --------------------------------------------------------------------------------------------------

def largest(x: torch.Tensor, count: int):
    """The largest of each row with their places, the earlier of equals first."""
    values, places = x.sort(dim=-1, descending=True, stable=True)
    return values[..., :count].contiguous(), places[..., :count].int().contiguous()


def rows(dtype: str, quick: bool):
    if dtype != "i32":
        shapes = [(1, 1), (5, 31), (1000, 8), (3, 7, 129), (64, 1024), (2, 50257)]
        for dims in shapes + ([] if quick else [(64, 50257), (8192, 1024)]):
            buffers = {name: dtype + shape(*dims) for name in "xy"}
            reference_sum = math.sqrt(dims[-1]) if dtype == "f64" else 0
            yield Case("softmax", dtype, buffers, "softmax(x -> y)", lambda t: {"y": t.x.softmax(-1)},
                       accumulated(dtype, 32 + reference_sum))
        yield Case("softmax", dtype, {"x": f"{dtype}[33, 257]", "y": f"{dtype}[33, 257]"},
                   "softmax(x -> y, scale: 0.125)", lambda t: {"y": (t.x * 0.125).softmax(-1)}, accumulated(dtype, 32))
        yield Case("softmax", dtype, {"x": f"{dtype}[9, 4, 66]", "y": f"{dtype}[9, 65]"},
                   "softmax(x[.., 2, 1..66] -> y)", lambda t: {"y": t.x[:, 2, 1:].softmax(-1)}, accumulated(dtype, 32))
    sizes = [(1, 1, 1), (3, 31, 5), (1000, 8, 2), (5, 1024, 8), (7, 257, 257), (2, 50257, 16)]
    for count, length, k in sizes + ([] if quick else [(2048, 64, 6), (16, 4096, 1024)]):
        buffers = {"x": f"{dtype}[{count}, {length}]", "v": f"{dtype}[{count}, {k}]", "i": f"i32[{count}, {k}]"}
        yield Case("top_k", dtype, buffers, f"top_k(x -> v, i, k: {k})",
                   lambda t, k=k: dict(zip("vi", largest(t["x"], k))))
    yield Case("top_k", dtype, {"x": f"{dtype}[6, 3, 40]", "v": f"{dtype}[6, 4]", "i": "i32[6, 4]"},
               "top_k(x[.., 1, 3..40] -> v, i, k: 4)", lambda t: dict(zip("vi", largest(t["x"][:, 1, 3:], 4))))


    for dims in [(1,), (5, 31), (1000, 8), (7, 2048), (3, 2049), (2, 50257)] + ([] if quick else [(4096, 1024), (1, 5_000_003)]):
        for descending in (False, True):
            def result(t, descending=descending):
                values, places = t["x"].sort(dim=-1, descending=descending, stable=True)
                return {"v": values, "i": places.int()}
            buffers = {"x": dtype + shape(*dims), "v": dtype + shape(*dims), "i": "i32" + shape(*dims)}
            yield Case("sort", dtype, buffers, f"sort(x -> v, i, descending: {str(descending).lower()})", result)


# --- Reductions --------------------------------------------------------------------------------------------------

def reductions(dtype: str, quick: bool):
    """Over the last dimension, the first, the outer ones and all; of slices too. Terms of one sign, so that sums have digits."""
    of = {"sum": ("x * x", lambda x, dims: (x * x).sum(dims)), "mean": ("abs(x)", lambda x, dims: x.abs().mean(dims)),
          "prod": ("1 + x * 1e-4", lambda x, dims: (1 + x * 1e-4).log().sum(dims).exp()),
          "logsumexp": ("x * 2", lambda x, dims: (x * 2).logsumexp(dims)), "max": ("x", lambda x, dims: x.amax(dims)),
          "min": ("x", lambda x, dims: x.amin(dims)), "argmax": ("x", lambda x, dims: x.argmax(dims)),
          "argmin": ("x", lambda x, dims: x.argmin(dims))}
    # Names as the language has them: sum(…), mean(…), prod(…), max(…), min(…), argmax(…), argmin(…), logsumexp(…).
    shapes = [(1, 1, 1), (3, 7, 129), (1000, 1, 8), (2, 50257, 3), (64, 33, 65)] + ([] if quick else [(4096, 8, 1024)])
    for name, (expression, expect) in of.items():
        if dtype == "i32" and name not in ("max", "min", "argmax", "argmin"):
            continue
        for dims in shapes:
            for axes in ((2,), (0,), (0, 2), (0, 1)):
                places = name.startswith("arg")
                if places and len(axes) > 1:
                    continue
                sizes = [size for axis, size in enumerate(dims) if axis not in axes]
                out = "i32" if places else dtype
                terms = math.prod(dims) // max(1, math.prod(sizes))
                bound = None if name in ("max", "min") or places else accumulated(dtype, 24 + 2 * math.sqrt(terms))

                def result(t, name=name, axes=axes, expect=expect, out=out):
                    got = expect(t.x, axes[0] if name.startswith("arg") else axes)
                    return {"y": store(got, out) if name in ("max", "min") else got.int() if out == "i32" else got}
                yield Case(name, dtype, {"x": dtype + shape(*dims), "y": out + shape(*sizes)},
                           f"{name}({expression} -> y, dims: {list(axes)})", result, bound)


def norms(dtype: str, quick: bool):
    """rms_norm(…), layer_norm(…), add_rms_norm(…) and add_layer_norm(…) of rows of several lengths, with weights and without."""
    def normalized(x, weight, bias, centred, eps):
        x = x - x.mean(-1, keepdim=True) if centred else x
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias

    shapes = [(1, 1), (5, 31), (1000, 8), (3, 7, 129), (64, 1024), (2, 50257)] + ([] if quick else [(8192, 4096)])
    for name in ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"):
        centred, adds = name.endswith("layer_norm"), name.startswith("add")
        for dims in shapes:
            buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims), "w": dtype + shape(dims[-1])}
            inputs = "x, "
            if adds:
                buffers |= {"r": dtype + shape(*dims), "s": dtype + shape(*dims)}
                inputs += "r, "
            if centred:
                buffers["b"] = dtype + shape(dims[-1])

            def result(t, centred=centred, adds=adds, dtype=dtype):
                total = store(t.x + t.r, dtype) if adds else t["x"]
                y = normalized(total.double(), t.w, t.b if centred else 0.0, centred, 1e-3)
                return {"y": y, "s": total} if adds else {"y": y}
            yield Case(name, dtype, buffers, f"{name}({inputs}w{', b' if centred else ''} -> y{', s' if adds else ''}, eps: 1e-3)",
                       result, accumulated(dtype, 32 + math.sqrt(dims[-1])))


def groups(dtype: str, quick: bool):
    """group_norm(…) and instance_norm(…)."""
    functional = torch.nn.functional
    for dims in [(1, 1), (3, 6, 5), (2, 32, 7, 9), (4, 64, 32, 32)] + ([] if quick else [(8, 320, 64, 64)]):
        of = {"instance_norm": dims[1]} | {"group_norm": max(n for n in (1, 2, 3, 32) if dims[1] % n == 0)}
        for name, count in of.items():
            buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims), "w": dtype + shape(dims[1]), "b": dtype + shape(dims[1])}
            option = f", groups: {count}" if name == "group_norm" else ""

            def result(t, count=count):
                return {"y": functional.group_norm(t.x, count, t.w, t.b, 1e-3)}
            yield Case(name, dtype, buffers, f"{name}(x, w, b -> y, eps: 1e-3{option})", result,
                       accumulated(dtype, 32 + math.sqrt(math.prod(dims[1:]))))


def gradients(dtype: str, quick: bool):
    """grad_norm(…) of one tensor and of several."""
    for sizes in [(1,), (31, 5), (4099, 70_001, 3)] + ([] if quick else [(4096 * 4096, 1000, 4096 * 11008)]):
        buffers = {f"g{place}": f"{dtype}[{size}]" for place, size in enumerate(sizes)}
        names = list(buffers)
        statistics = "f64" if dtype == "f64" else "f32"
        yield Case("grad_norm", dtype, buffers | {"y": statistics}, f"grad_norm({', '.join(names)} -> y)",
                   lambda t, names=names: {"y": torch.linalg.vector_norm(torch.cat([getattr(t, name) for name in names]))},
                   accumulated(dtype, 8 + math.sqrt(sum(sizes))))


def batches(dtype: str, quick: bool):
    """batch_norm(…) in training, with its statistics."""
    statistics = "f64" if dtype == "f64" else "f32"
    for dims in [(2, 1), (3, 6, 5), (2, 32, 7, 9), (1000, 3), (4, 64, 32, 32)] + ([] if quick else [(32, 256, 56, 56)]):
        buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims), "w": dtype + shape(dims[1]), "b": dtype + shape(dims[1]),
                   "m": statistics + shape(dims[1]), "v": statistics + shape(dims[1])}

        def result(t, dims=dims):
            over = [axis for axis in range(len(dims)) if axis != 1]
            return {"y": torch.nn.functional.batch_norm(t.x, None, None, t.w, t.b, True, 0.0, 1e-3),
                    "m": t.x.mean(over), "v": t.x.var(over, correction=0)}
        yield Case("batch_norm", dtype, buffers, "batch_norm(x, w, b -> y, m, v, eps: 1e-3)", result,
                   accumulated(dtype, 32 + 4 * math.sqrt(math.prod(dims) / dims[1])))


def distances(dtype: str, quick: bool):
    """cosine_similarity(…) and triplet(…)."""
    functional = torch.nn.functional
    for dims in [(1, 1), (31, 5), (2, 3, 1001), (3, 50257)] + ([] if quick else [(4096, 4096)]):
        bound = accumulated(dtype, 32 + 2 * math.sqrt(dims[-1]))
        buffers = {name: dtype + shape(*dims) for name in "abc"} | {"y": dtype + shape(*dims[:-1])}
        yield Case("cosine_similarity", dtype, buffers, "cosine_similarity(a, b -> y)",
                   lambda t: {"y": functional.cosine_similarity(t.a, t.b, -1)}, bound)
        for p, swap in ((1, False), (2, True)):
            yield Case("triplet", dtype, buffers, f"triplet(a, b, c -> y, p: {p}, swap: {str(swap).lower()}, margin: 100)",
                       lambda t, p=p, swap=swap: {"y": functional.triplet_margin_loss(t.a, t.b, t.c, 100.0, p, 1e-6, swap, reduction="none")},
                       bound)


def losses(dtype: str, quick: bool):
    """cross_entropy(…), mse(…), l1(…), huber(…), kl_div(…) and hinge(…)."""
    functional = torch.nn.functional
    for rows_, classes in [(1, 1), (5, 31), (1000, 8), (64, 1024), (3, 50257)] + ([] if quick else [(4096, 32000)]):
        for smoothing in (0.0, 0.1):
            # Targets are whole numbers from 0 to 99: some are no class.
            def result(t, classes=classes, smoothing=smoothing):
                target = t["t"].long()
                loss = functional.cross_entropy(t.x, target.clamp(max=classes - 1), reduction="none", label_smoothing=smoothing)
                return {"y": torch.where(target < classes, loss, 0.0)}
            yield Case("cross_entropy", dtype, {"x": f"{dtype}[{rows_}, {classes}]", "t": f"i32[{rows_}]", "y": f"{dtype}[{rows_}]"},
                       f"cross_entropy(x, t -> y, label_smoothing: {smoothing})", result,
                       accumulated(dtype, 32 + math.sqrt(classes)))
    of = {"mse": lambda x, t: (x - t).square(), "l1": lambda x, t: (x - t).abs(),
          "huber": lambda x, t: functional.huber_loss(x, t, reduction="none"),
          "kl_div": lambda x, t: functional.kl_div(x, t, reduction="none").nan_to_num(0.0), "hinge": lambda x, t: (1 - x * t).relu()}
    for name, expect in of.items():
        for dims in [(1,), (31, 5), (2, 3, 1001)] + ([] if quick else [(4096, 4096)]):
            for reduction in ("mean", "sum", "none"):
                positive = "abs(t) + 0.1" if name == "kl_div" else "t"

                def result(t, expect=expect, reduction=reduction):
                    each = expect(t.x, t.p)
                    return {"y": each if reduction == "none" else getattr(each, reduction)()}
                kept = shape(*dims) if reduction == "none" else ""
                yield Case(name, dtype, {"x": dtype + shape(*dims), "t": dtype + shape(*dims), "p": dtype + shape(*dims),
                                         "y": dtype + kept},
                           f"map({positive} -> p)\n  {name}(x, p, reduction: {reduction} -> y)", result,
                           accumulated(dtype, 40 + 2 * math.sqrt(math.prod(dims))))


def scans(dtype: str, quick: bool):
    """cumsum(…) and cumprod(…) along each dimension."""
    for dims in [(1,), (3, 31, 5), (1000, 8), (70000,), (2, 50257), (9000, 3)] + ([] if quick else [(4096, 4096)]):
        for dim in range(len(dims)):
            bound = accumulated(dtype, 16 + 2 * math.sqrt(dims[dim]))
            buffers = {"x": dtype + shape(*dims), "p": dtype + shape(*dims), "y": dtype + shape(*dims)}
            yield Case("cumsum", dtype, buffers, f"map(abs(x) -> p)\n  cumsum(p, dim: {dim} -> y)",
                       lambda t, dim=dim: {"y": t.p.cumsum(dim)}, bound)
            yield Case("cumprod", dtype, buffers, f"map(1 + x * 1e-3 -> p)\n  cumprod(p, dim: {dim} -> y)",
                       lambda t, dim=dim: {"y": t.p.cumprod(dim)}, bound)


# --- Moving elements about ---------------------------------------------------------------------------------------

def gathered(x: torch.Tensor, i: torch.Tensor):
    i = i.long()
    inside = (i >= 0) & (i < len(x))
    mask = inside.reshape(i.shape + (1,) * (x.dim() - 1))
    return torch.where(mask, x[i.clamp(0, len(x) - 1)], torch.zeros_like(x[:1]))


def scattered(t: Tensors, add: bool, weights=None):
    """Into zeros: for each row the last that goes there, or the sum, times weights where there are some."""
    places = t["r"].flatten().long()
    inner = t.y.shape[1:]
    x = t.x.reshape((-1,) + inner)
    if weights is not None:
        x = x * weights.reshape((-1,) + (1,) * len(inner))
    kept = (places >= 0) & (places < len(t.y))
    x, places = x[kept], places[kept]
    if add:
        return torch.zeros_like(t.y).index_add(0, places, x)
    order = torch.arange(len(places), device=places.device)
    last = torch.full((len(t.y),), -1, device=places.device).scatter_reduce(0, places, order, "amax")
    return gathered(x, last) if len(x) else torch.zeros_like(t.y)


def routed(t: Tensors, count: int, capacity: int, normalize: bool):
    """For each expert the tokens that chose it among their `count`, in order, up to its capacity."""
    probs = t["p"]
    tokens, experts = probs.shape
    _, places = largest(probs, count)
    chosen = torch.zeros(tokens, experts, dtype=torch.bool, device=probs.device).scatter(1, places.long(), True)
    weights = probs.double()
    if normalize:
        weights = weights / (weights * chosen).sum(1, keepdim=True)
    slots = torch.full((experts, capacity), -1, dtype=torch.int32, device=probs.device)
    slot_weights = torch.zeros((experts, capacity), dtype=torch.float64, device=probs.device)
    dropped = torch.zeros(experts, dtype=torch.int32, device=probs.device)
    for expert in range(experts):
        all_of_it = chosen[:, expert].nonzero().flatten()
        kept = all_of_it[:capacity]
        slots[expert, :len(kept)] = kept.int()
        slot_weights[expert, :len(kept)] = weights[kept, expert]
        dropped[expert] = len(all_of_it) - len(kept)
    return {"s": slots, "w": slot_weights if normalize else slot_weights.to(probs.dtype), "d": dropped}


def movement(dtype: str, quick: bool):
    transposes = [((1, 1), None), ((31, 33), None), ((257, 64), None), ((3, 65, 127), None),
                  ((2, 3, 5), (2, 0, 1)), ((5, 33, 17), (1, 0, 2)), ((4, 3, 2, 33), (3, 1, 0, 2))]
    for dims, order in transposes + ([] if quick else [((1000, 1000), None), ((4096, 1031), None)]):
        axes = order or (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
        buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*(dims[axis] for axis in axes))}
        options = f", dims: {shape(*order)}" if order else ""
        yield Case("transpose", dtype, buffers, f"transpose(x -> y{options})",
                   lambda t, axes=axes: {"y": t["x"].permute(axes).contiguous()})
    yield Case("transpose", dtype, {"x": f"{dtype}[40, 50]", "y": f"{dtype}[33, 17]"},
               "transpose(x[3..20, 5..38] -> y)", lambda t: {"y": t["x"][3:20, 5:38].T.contiguous()})

    # Indices are random from 0 to 99: beyond the table in the first, twice and more in all. The last has negative ones.
    tables = [((50,), (33,)), ((100, 17), (64,)), ((128, 64), (5, 13)), ((100, 3, 9), (7, 2))]
    for table, picks in tables + ([] if quick else [((100, 4096), (2048,))]):
        buffers = {"x": dtype + shape(*table), "i": "i32" + shape(*picks), "y": dtype + shape(*picks, *table[1:])}
        yield Case("gather", dtype, buffers, "gather(x, i -> y)", lambda t: {"y": gathered(t["x"], t["i"])})
    yield Case("gather", dtype, {"x": f"{dtype}[30, 65]", "i": "i32[200]", "j": "i32[200]", "y": f"{dtype}[200, 64]"},
               "map(i - 30 -> j)\n  gather(x[.., 1..65], j -> y)", lambda t: {"y": gathered(t["x"][:, 1:], t["j"])})

    # Choices are random from 0 to 99, of 90 experts: some are none.
    for rows_, each, width in [(1, 1, 1), (40, 2, 33), (700, 3, 64)] + ([] if quick else [(8192, 8, 2048)]):
        buffers = {"x": dtype + shape(rows_, width), "i": "i32" + shape(rows_, each), "y": dtype + shape(rows_ * each, width),
                   "p": "i32" + shape(rows_, each), "c": "i32[90]"}

        def result(t, rows_=rows_, each=each, width=width):
            flat = t["i"].flatten().long()
            order = torch.where(flat < 90, flat, 90).sort(stable=True).indices[:int((flat < 90).sum())]
            y = torch.zeros((rows_ * each, width), dtype=t["x"].dtype, device=DEVICE)
            y[:len(order)] = t["x"][order // each]
            places = torch.full((rows_ * each,), -1, dtype=torch.int32, device=DEVICE)
            places[order] = torch.arange(len(order), dtype=torch.int32, device=DEVICE)
            return {"y": y, "p": places.reshape(rows_, each), "c": flat[flat < 90].bincount(minlength=90).int()}
        yield Case("permute", dtype, buffers, "permute(x, i, experts: 90 -> y, p, c)", result)
        if dtype in FLOATS:
            buffers = {"x": dtype + shape(100, width), "i": "i32" + shape(rows_, each), "w": dtype + shape(rows_, each),
                       "y": dtype + shape(rows_, width)}
            yield Case("unpermute", dtype, buffers, "unpermute(x, i, w -> y)",
                       lambda t: {"y": (t.x[t["i"].long()] * t.w[..., None]).sum(1)}, accumulated(dtype, 4 * each))

    for picks, width in [((7,), 33), ((3, 50), 64)]:
        buffers = {"x": f"{dtype}[100, {width}]", "i": "i64" + shape(*picks), "y": dtype + shape(*picks, width)}
        yield Case("embedding", dtype, buffers, "embedding(x, i -> y)", lambda t: {"y": torch.nn.functional.embedding(t["i"], t["x"])})
    for dims, axis in [((5,), 0), ((3, 4, 65), 1), ((33, 8), -1)]:
        joined = list(dims)
        joined[axis] *= 3
        buffers = {"x": dtype + shape(*dims), "z": dtype + shape(*dims), "y": dtype + shape(*joined)}
        yield Case("concat", dtype, buffers, f"concat(x, z, x, dim: {axis} -> y)",
                   lambda t, axis=axis: {"y": torch.cat((t["x"], t["z"], t["x"]), axis)})
    for dims, before, after in [((5,), (1,), (0,)), ((9, 65), (0, 3), (2, 1)), ((2, 3, 64), (1, 0, 8), (0, 0, 8))]:
        padded = [size + left + right for size, left, right in zip(dims, before, after)]
        sides = [side for pair in zip(reversed(before), reversed(after)) for side in pair]
        buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*padded)}
        yield Case("pad", dtype, buffers, f"pad(x, before: {list(before)}, after: {list(after)}, value: 3 -> y)",
                   lambda t, sides=sides: {"y": torch.nn.functional.pad(t["x"], sides, value=3)})

    # Indices from 0 to 99 as they are, or wrapped to the rows that there are. The last has rows with more addends than
    # the kernel lists in one pass.
    spreads = [((33,), (), 50, False), ((64,), (17,), 100, False), ((5, 13), (64,), 128, False),
               ((2, 7), (3, 9), 10, True), ((200,), (8,), 1, True), ((3000,), (33,), 2, True)]
    for picks, inner, count, wrapped in spreads + ([] if quick else [((4096,), (1024,), 100, False)]):
        buffers = {"x": dtype + shape(*picks, *inner), "i": "i32" + shape(*picks), "r": "i32" + shape(*picks),
                   "y": dtype + shape(count, *inner)}
        before = f"map(i {f'% {count}' if wrapped else '+ 0'} -> r)\n  "
        # As many as meet in a row on average, and some more by chance.
        addends = 8 + 2 * math.prod(picks) // min(count, 100)
        bound = None if dtype == "i32" else accumulated(dtype, 2 * addends)
        yield Case("scatter", f"{dtype}, set", buffers, before + "scatter(x, r -> y)",
                   lambda t: {"y": scattered(t, add=False).to(t["x"].dtype)})
        yield Case("scatter", f"{dtype}, add", buffers, before + "scatter(x, r -> y, combine: add)",
                   lambda t: {"y": store(scattered(t, add=True), "i32") if dtype == "i32" else scattered(t, add=True)},
                   bound)
        if dtype != "i32":
            yield Case("scatter", f"{dtype}, weighted add", {**buffers, "w": dtype + shape(*picks)},
                       before + "scatter(x, r, w -> y, combine: add)",
                       lambda t: {"y": scattered(t, add=True, weights=t.w)}, bound)
    if dtype == "bf16":
        buffers = {"x": "bf16[64, 31]", "r": "i32[64]", "w": "f32[64]", "y": "bf16[100, 31]"}
        yield Case("scatter", "bf16, weighted set", buffers, "scatter(x, r, w -> y)",
                   lambda t: {"y": scattered(t, add=False, weights=t.w)}, accumulated(dtype, 2))

    if dtype == "i32":
        return
    routes = [(1, 1, 1, 1), (16, 4, 2, 4), (257, 8, 2, 40), (1000, 7, 3, 1), (300, 65, 1, 10)]
    for tokens, experts, k, capacity in routes + ([] if quick else [(2048, 64, 8, 300), (4096, 256, 4, 64)]):
        for normalize in (False, True):
            places = shape(experts, capacity)
            buffers = {"x": f"{dtype}[{tokens}, {experts}]", "p": f"{dtype}[{tokens}, {experts}]",
                       "s": "i32" + places, "w": dtype + places, "d": f"i32[{experts}]"}
            option = ", normalize: true" if normalize else ""
            # Probabilities as softmax gives them; the reference takes them as they are.
            text = f"softmax(x -> p)\n  route(p -> s, w, d, k: {k}, capacity: {capacity}{option})"
            yield Case("route", dtype + (", normalised" if normalize else ""), buffers, text,
                       lambda t, k=k, c=capacity, n=normalize: routed(t, k, c, n),
                       accumulated(dtype, 2 + k) if normalize else None)


# --- Copies ------------------------------------------------------------------------------------------------------

def copies(dtype: str, quick: bool):
    spaces = [("device", "device", "auto"), ("device", "device", "dma"), ("device", "device", "kernel"),
              ("pinned", "device", "auto"), ("pinned", "device", "kernel"), ("device", "pinned", "auto"),
              ("device", "pinned", "kernel"), ("host", "device", "auto"), ("device", "host", "auto")]
    large = [] if quick else [(1_048_583,)]
    for source, target, via in spaces:
        for dims in [(1,), (31, 33)] + large:
            buffers = {"x": f"{dtype}{shape(*dims)} in {source}", "y": f"{dtype}{shape(*dims)} in {target}"}
            yield Case("copy", dtype, buffers, f"copy(x -> y, via: {via})", lambda t: {"y": t["x"]})
        buffers = {"x": f"{dtype}[9, 4, 33] in {source}", "y": f"{dtype}[9, 33] in {target}"}
        yield Case("copy", dtype, buffers, f"copy(x[.., 1] -> y, via: {via})",
                   lambda t: {"y": t["x"][:, 1].contiguous()})
    yield Case("copy", dtype, {"x": f"{dtype}[4, 5, 6, 7]", "y": f"{dtype}[4, 3, 6, 2]"},
               "copy(x[.., 1..4, .., 3..5] -> y, via: kernel)", lambda t: {"y": t["x"][:, 1:4, :, 3:5].contiguous()})
    yield Case("copy", dtype, {"x": f"{dtype}[6, 35]", "y": f"{dtype}[10, 21]"}, "copy(x -> y)",
               lambda t: {"y": t["x"].reshape(10, 21)})
    for source, target, via in spaces:
        buffers = {"x": f"{dtype}[9, 4, 33] in {source}", "y": f"{dtype}[5, 4, 33] in {target}"}
        yield Case("copy", dtype, buffers, f"copy(x, indices: [7, 2, 3, 3, 0] -> y, via: {via})",
                   lambda t: {"y": t["x"][[7, 2, 3, 3, 0]]})
    for dims in [(1,), (31, 33)] + large:
        for value in (0, 1, 255):
            def filled(t, value=value):
                return {"x": torch.full_like(t["x"].view(torch.uint8), value).view(TORCH[dtype])}

            yield Case("memset", dtype, {"x": dtype + shape(*dims)}, f"memset({value} -> x)", filled)
    yield Case("all_to_all", dtype, {"x": f"{dtype}[4, 3, 64]", "y": f"{dtype}[3, 64]"}, "all_to_all(x[2] -> y)",
               lambda t: {"y": t["x"][2].contiguous()})
    # A send and its receive are in one group, which shows both.
    together = {"all_reduce": "all_reduce(x, op: sum -> y)", "all_gather": "all_gather(x -> y)",
                "reduce_scatter": "reduce_scatter(x, op: max -> y)", "all_to_all": "all_to_all(x -> y)",
                "broadcast": "broadcast(x, root: 0 -> y)", "reduce": "reduce(x, op: sum, root: 0 -> y)",
                "recv": "group { send(x, to: 0) recv(-> y, from: 0) }"}
    for operation, text in together.items():
        for dims in [(1,), (31, 33)] + large:
            buffers = {"x": dtype + shape(*dims), "y": dtype + shape(*dims)}
            yield Case(operation, dtype, buffers, text, lambda t: {"y": t["x"]})


GROUPS = [(gemm, FLOATS), (scaled_gemm, FLOATS), (grouped_gemm, FLOATS), (attention, FLOATS), (windows, FLOATS), (movement, (*FLOATS, "i32", "i64")), (rows, (*FLOATS, "i32")), (reductions, (*FLOATS, "i32")), (norms, FLOATS),
          (groups, FLOATS), (gradients, FLOATS), (batches, FLOATS), (distances, FLOATS), (losses, FLOATS), (scans, FLOATS), (elementwise, FLOATS), (by_name, FLOATS),
          (whole_numbers, ("whole",)), (copies, (*FLOATS, "i32", "u8"))]
