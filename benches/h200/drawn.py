"""Cases of each operation for shapes.py, drawn by seed: odd sizes, primes, broadcasts, gaps, every type."""
import itertools
import math

from drawn_case import SIZES, Case, count, elements, log_uniform, shape, size
from drawn_products import (draw_few_terms_gemm, draw_gemm, draw_grouped_gemm, draw_narrow_gemm, draw_odd_gemm, draw_odd_grouped_gemm,
                            draw_scaled_gemm, draw_thin_gemm, draw_thin_grouped_gemm)
from drawn_windows import draw_conv, draw_few_conv, draw_pool


def draw_map(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16", "f64"))
    dims = shape(draw, draw.randrange(1, 5), elements(draw, dtype, 3))
    kind = draw.choice(("unary", "add", "add", "row", "column", "axis", "slice", "mask"))
    each = SIZES[dtype]
    full = count(dims) * each
    if kind == "unary":
        name = draw.choice(("gelu", "silu", "exp", "relu", "tanh", "sqrt"))
        return Case(f"{name} {dtype}{dims}", {"x": (dtype, dims), "y": (dtype, dims)}, f"map({name}(x) -> y)",
                    lambda t, torch: (lambda: getattr(torch.nn.functional, name, None) and getattr(torch.nn.functional, name)(t["x"])
                                      if name in ("gelu", "silu", "relu") else getattr(torch, name)(t["x"], out=t["y"])), 2 * full)
    if kind in ("row", "column", "axis"):
        other = list(dims)
        if kind == "row":
            other = [1] * (len(dims) - 1) + dims[-1:]
        elif kind == "column":
            other = dims[:-1] + [1]
        else:
            axis = draw.randrange(len(dims))
            other = [n if i == axis else 1 for i, n in enumerate(dims)]
    else:
        other = dims
    if kind == "slice":
        wide = list(dims)
        axis = draw.randrange(len(dims))
        extra = draw.randrange(1, 9)
        wide[axis] += extra
        begin = draw.randrange(0, extra + 1)
        index = ", ".join(f"{begin}..{begin + dims[axis]}" if i == axis else ".." for i in range(len(dims)))
        where = tuple(slice(begin, begin + dims[axis]) if i == axis else slice(None) for i in range(len(dims)))
        return Case(f"add, slice of {dtype}{wide} to {dims}",
                    {"x": (dtype, wide), "b": (dtype, dims), "y": (dtype, dims)}, f"map(x[{index}] + b -> y)",
                    lambda t, torch: (lambda: torch.add(t["x"][where], t["b"], out=t["y"])), 3 * full)
    if kind == "mask" and len(dims) >= 2:
        rows, columns = dims[-2:]
        return Case(f"causal mask {dtype}{dims}",
                    {"x": (dtype, dims), "r": ("i32", [rows, 1]), "c": ("i32", [columns]), "y": (dtype, dims)},
                    "map(if c <= r { x } else { 0 } -> y)",
                    lambda t, torch: (lambda: torch.where(t["c"] <= t["r"], t["x"], 0.0)), 2 * full)
    return Case(f"add {dtype}{dims} + {other}", {"x": (dtype, dims), "b": (dtype, other), "y": (dtype, dims)}, "map(x + b -> y)",
                lambda t, torch: (lambda: torch.add(t["x"], t["b"], out=t["y"])), 2 * full + count(other) * each)


def draw_cast(draw):
    source, target = draw.sample(list(SIZES), 2)
    dims = shape(draw, draw.randrange(1, 4), elements(draw, "f32"))
    return Case(f"{source} to {target} {dims}", {"x": (source, dims), "y": (target, dims)}, "cast(x -> y)",
                lambda t, torch: (lambda: t["y"].copy_(t["x"])), count(dims) * (SIZES[source] + SIZES[target]))


def draw_fill(draw):
    dtype = draw.choice(list(SIZES))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 1))
    return Case(f"{dtype}{dims}", {"y": (dtype, dims)}, "fill(3 -> y)", lambda t, torch: (lambda: t["y"].fill_(3)),
                count(dims) * SIZES[dtype])


def draw_memset(draw):
    dims = [elements(draw, "u8", 1)]
    return Case(f"{dims[0]} bytes", {"y": ("u8", dims)}, "memset(0 -> y)", lambda t, torch: (lambda: t["y"].zero_()), dims[0])


def draw_softmax(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    length = min(1_000_000, size(draw, 2, 200_000))
    rows = max(1, elements(draw, dtype) // length)
    dims = [rows, length]
    return Case(f"{dtype}{dims}", {"x": (dtype, dims), "y": (dtype, dims)}, "softmax(x -> y)",
                lambda t, torch: (lambda: torch.softmax(t["x"], dim=-1)), 2 * count(dims) * SIZES[dtype])


def draw_top_k(draw):
    dtype = draw.choice(("f32", "bf16", "f32", "f16"))
    length = min(1_000_000, size(draw, 8, 300_000))
    rows = max(1, min(elements(draw, dtype, 1) // 4, 1 << 24) // length)
    k = min(length, draw.choice((1, 2, 4, 8, 50, log_uniform(draw, 1, 256))))
    return Case(f"{dtype}[{rows}, {length}], k {k}",
                {"x": (dtype, [rows, length]), "v": (dtype, [rows, k]), "i": ("i32", [rows, k])}, f"top_k(x -> v, i, k: {k})",
                lambda t, torch: (lambda: torch.topk(t["x"], k, dim=-1)), rows * (length + k) * SIZES[dtype] + 4 * rows * k)


def draw_transpose(draw):
    dtype = draw.choice(("f32", "bf16", "f16", "u8", "f64"))
    rank = draw.randrange(2, 5)
    dims = shape(draw, rank, elements(draw, dtype))
    order = list(range(rank))
    while order == list(range(rank)):
        draw.shuffle(order)
    target = [dims[axis] for axis in order]
    return Case(f"{dtype}{dims} by {order}", {"x": (dtype, dims), "y": (dtype, target)}, f"transpose(x -> y, dims: {order})",
                lambda t, torch: (lambda: t["y"].copy_(t["x"].permute(order))), 2 * count(dims) * SIZES[dtype])


def indices(name, n, below, dtype="i32", kind="even"):
    """Buffers and operations that make `n` indices below a bound, from numbers from 0 to 99. PyTorch evaluates the same expression.

    Of the indices, `hot` makes half 0; with `zipf`, index k is as frequent as 1 / (k + 1)."""
    parts = {f"{name}a": ("i32", [n]), f"{name}b": ("i32", [n]), f"{name}c": ("i32", [n]), name: (dtype, [n])}
    below_million = f"({name}a * 10000 + {name}b * 100 + {name}c)"
    made = {"even": f"{below_million} % {below}", "hot": f"{below_million} % {below} * ({name}a % 2)",
            "zipf": f"exp({below_million} * {math.log(below) / 1e6:.12f}) - 1"}[kind]
    return parts, f"map({made} -> {name})"


def draw_gather(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    inner = size(draw, 1, 16384)
    n = max(1, min(elements(draw, dtype) // inner, 1 << 22))
    rows = max(1, min(size(draw, 1, 200_000), (1 << 27) // SIZES[dtype] // inner))
    parts, setup = indices("i", n, rows)
    return Case(f"{n} of {dtype}[{rows}, {inner}]", {"x": (dtype, [rows, inner]), "y": (dtype, [n, inner]), **parts},
                "gather(x, i -> y)", lambda t, torch: (lambda: torch.index_select(t["x"], 0, t["i"], out=t["y"])),
                (n + min(n, rows)) * inner * SIZES[dtype] + 4 * n, setup)


def draw_pages(draw):
    dtype = draw.choice(("f32", "bf16", "f16"))
    page, via = size(draw, 1, 1 << 18), draw.choice(("auto", "kernel"))
    pages = max(1, min(size(draw, 1, 1024), (1 << 27) // page))
    taken = max(1, min(size(draw, 1, 512), elements(draw, dtype) // page))
    numbers = [draw.randrange(pages) for _ in range(taken)]

    def body(t, torch):
        index = torch.tensor(numbers, device="cuda")
        return lambda: torch.index_select(t["x"], 0, index, out=t["y"])
    return Case(f"{taken} of {dtype}[{pages}, {page}], via {via}", {"x": (dtype, [pages, page]), "y": (dtype, [taken, page])},
                f"copy(x, indices: {numbers}, via: {via} -> y)", body, (taken + len(set(numbers))) * page * SIZES[dtype])


def draw_scatter(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    inner = size(draw, 1, 8192)
    n = max(1, min(elements(draw, dtype) // inner, 1 << 20))
    rows = max(1, min(size(draw, 1, 100_000), (1 << 27) // SIZES[dtype] // inner))
    kind = draw.choice(("even", "even", "even", "hot", "zipf"))
    parts, setup = indices("i", n, rows, kind=kind)

    def body(t, torch):
        def run():
            y = torch.zeros_like(t["y"])
            return y.index_add_(0, t["i"], t["x"])
        return run
    return Case(f"{dtype}[{n}, {inner}] into {rows}, {kind}",
                {"x": (dtype, [n, inner]), "y": (dtype, [rows, inner]), **parts},
                "scatter(x, i -> y, combine: add)", body, (n + rows) * inner * SIZES[dtype] + 4 * n, setup)


def draw_route(draw):
    dtype = draw.choice(("f32", "f32", "bf16"))
    tokens = size(draw, 16, 65536)
    experts = draw.choice((8, 16, 32, 64, 64, 128, 256, 60, 160, 384))
    k = draw.choice((1, 2, 4, 6, 8))
    capacity = max(1, int(tokens * k / experts * draw.uniform(0.8, 2)))

    def body(t, torch):
        places = torch.arange(tokens * k, device="cuda")

        def run():
            v, i = torch.topk(t["x"], k, dim=-1)
            expert, order = i.flatten().sort(stable=True)
            counts = torch.zeros(experts, dtype=torch.int64, device="cuda").index_add_(0, expert, torch.ones_like(expert))
            begin = counts.cumsum(0) - counts
            slot = places - begin[expert]
            kept = slot < capacity
            at = torch.where(kept, expert * capacity + slot, experts * capacity)
            slots = torch.full((experts * capacity + 1,), -1, dtype=torch.int32, device="cuda")
            slots.index_copy_(0, at, (order // k).int())
            weights = torch.zeros(experts * capacity + 1, dtype=v.dtype, device="cuda")
            weights.index_copy_(0, at, v.flatten()[order])
            return slots, weights, (counts - capacity).clamp(min=0)
        return run
    return Case(f"{dtype}[{tokens}, {experts}], k {k}, capacity {capacity}",
                {"x": (dtype, [tokens, experts]), "s": ("i32", [experts, capacity]), "w": (dtype, [experts, capacity]),
                 "d": ("i32", [experts])}, f"route(x -> s, w, d, k: {k}, capacity: {capacity})", body,
                tokens * experts * SIZES[dtype] + experts * capacity * (4 + SIZES[dtype]))


def draw_copy(draw):
    dtype = draw.choice(("f32", "bf16", "u8", "f64"))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype))
    via = draw.choice(("kernel", "kernel", "auto"))
    wide, parts, where = list(dims), [], []
    for axis, n in enumerate(dims):
        # Rows at one distance: what engines can do too.
        if draw.random() < 0.5 and (via == "kernel" or axis == len(dims) - 1):
            extra = draw.randrange(1, 65)
            begin = draw.randrange(0, extra + 1)
            # A column of a very long matrix with many columns does not fit the device.
            if count(wide) // n * (n + extra) * SIZES[dtype] > 1 << 31:
                parts.append("..")
                where.append(slice(None))
                continue
            wide[axis] += extra
            parts.append(f"{begin}..{begin + n}")
            where.append(slice(begin, begin + n))
        else:
            parts.append("..")
            where.append(slice(None))
    where = tuple(where)
    return Case(f"{dtype}{wide} to {dims}, via {via}", {"x": (dtype, wide), "y": (dtype, dims)},
                f"copy(x[{', '.join(parts)}] -> y, via: {via})", lambda t, torch: (lambda: t["y"].copy_(t["x"][where])),
                2 * count(dims) * SIZES[dtype])


def draw_map_several(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 4))
    full = count(dims) * SIZES[dtype]
    both = {"a": (dtype, dims), "b": (dtype, dims)}
    if draw.random() < 0.5:
        return Case(f"sum and difference {dtype}{dims}", {**both, "u": (dtype, dims), "v": (dtype, dims)}, "map(a + b, a - b -> u, v)",
                    lambda t, torch: (lambda: (torch.add(t["a"], t["b"], out=t["u"]), torch.sub(t["a"], t["b"], out=t["v"]))), 4 * full)
    return Case(f"in f32 as well {dtype}{dims}", {"a": (dtype, dims), "u": (dtype, dims), "v": ("f32", dims)},
                "map(relu(a), a * 0.5 -> u, v)",
                lambda t, torch: (lambda: (torch.clamp(t["a"], min=0, out=t["u"]), t["v"].copy_(t["a"]).mul_(0.5))),
                2 * full + 4 * count(dims))


def draw_embedding(draw):
    dtype = draw.choice(("bf16", "bf16", "f32"))
    width, rows = size(draw, 32, 8192), size(draw, 1000, 200_000)
    rows = max(1, min(rows, (1 << 29) // SIZES[dtype] // width))
    n = max(1, min(elements(draw, dtype) // width, 1 << 17))
    parts, setup = indices("i", n, rows, draw.choice(("i64", "i32")))
    return Case(f"{n} of {dtype}[{rows}, {width}]", {"x": (dtype, [rows, width]), "y": (dtype, [n, width]), **parts},
                "embedding(x, i -> y)", lambda t, torch: (lambda: torch.nn.functional.embedding(t["i"], t["x"])),
                (n + min(n, rows)) * width * SIZES[dtype] + SIZES[parts["i"][0]] * n, setup)


def draw_concat(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "u8", "i64"))
    parts = draw.choice((2, 2, 3, 4, 8, 12))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 2 * parts))
    axis = draw.randrange(len(dims))
    buffers, names, along = {}, [f"x{part}" for part in range(parts)], 0
    for name in names:
        own = list(dims)
        own[axis] = max(1, int(own[axis] * draw.choice((0.3, 1, 1, 1.7))))
        along += own[axis]
        buffers[name] = (dtype, own)
    whole = list(dims)
    whole[axis] = along
    buffers["y"] = (dtype, whole)
    return Case(f"{parts} to {dtype}{whole} along {axis}", buffers, f"concat({', '.join(names)}, dim: {axis} -> y)",
                lambda t, torch: (lambda: torch.cat([t[name] for name in names], axis, out=t["y"])), 2 * count(whole) * SIZES[dtype])


def draw_pad(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "u8", "f64"))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype))
    before, after = ([draw.choice((0, 0, 1, 8, 64)) for _ in dims] for _ in range(2))
    sizes = lambda: [n + left + right for n, left, right in zip(dims, before, after)]
    # Many short dimensions with padding on all sides would not fit into the device's memory.
    while count(sizes()) * SIZES[dtype] > 1 << 32:
        widest = max(range(len(dims)), key=lambda dim: (before[dim] + after[dim]) / dims[dim])
        before[widest] = after[widest] = 0
    sides = [side for pair in zip(reversed(before), reversed(after)) for side in pair]
    whole = sizes()
    return Case(f"{dtype}{dims} by {before}, {after}", {"x": (dtype, dims), "y": (dtype, whole)},
                f"pad(x, before: {before}, after: {after} -> y)",
                lambda t, torch: (lambda: torch.nn.functional.pad(t["x"], sides)), (count(dims) + count(whole)) * SIZES[dtype])


def draw_rope(draw):
    dtype = draw.choice(("bf16", "bf16", "f16", "f32"))
    width, positions = 2 * size(draw, 16, 128), size(draw, 1, 8192)
    heads = max(1, min(elements(draw, dtype) // width // positions, 1 << 16))
    dims, angles = [heads, positions, width], [positions, width // 2]

    def body(t, torch):
        cos, sin = (torch.cat((t[name], t[name]), -1) for name in ("cos", "sin"))

        def run():
            half = width // 2
            turned = torch.cat((-t["x"][..., half:], t["x"][..., :half]), -1)
            return t["x"] * cos + turned * sin
        return run
    return Case(f"{dtype}{dims}", {"x": (dtype, dims), "cos": (dtype, angles), "sin": (dtype, angles), "y": (dtype, dims)},
                "rope(x, cos, sin -> y)", body, (2 * count(dims) + 2 * count(angles)) * SIZES[dtype])


def draw_dropout(draw):
    dtype = draw.choice(("bf16", "bf16", "f16", "f32"))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype))
    return Case(f"{dtype}{dims}", {"x": (dtype, dims), "y": (dtype, dims)}, f"dropout(x, p: 0.1, seed: {draw.randrange(1 << 40)} -> y)",
                lambda t, torch: (lambda: torch.nn.functional.dropout(t["x"], 0.1)), 2 * count(dims) * SIZES[dtype])


def optimizer(draw, updated, call, make):
    """A step of an optimizer that reads `g` and updates these tensors; PyTorch's is made from its parameter."""
    dtype = draw.choice(("f32", "f32", "bf16"))
    n = elements(draw, "f32", 1 + len(updated))

    def body(t, torch):
        w = t["w"].requires_grad_()
        w.grad = t["g"]
        return torch.compiler.disable(make(torch.optim, [w]).step)
    return Case(f"{dtype}[{n}]", {name: (dtype, [n]) for name in ("g", *updated)}, call, body, (1 + 2 * len(updated)) * n * SIZES[dtype])


def draw_adamw(draw):
    return optimizer(draw, ("w", "m", "v"), "adamw(g -> w, m, v)",
                     lambda optim, parameters: optim.AdamW(parameters, lr=1e-3, fused=True, capturable=True))


def draw_sgd(draw):
    return optimizer(draw, ("w", "v"), "sgd(g -> w, v, momentum: 0.9)",
                     lambda optim, parameters: optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True))


def draw_triad(draw):
    n = elements(draw, "f32", 3)

    # Each call of aorta's has inputs of its own, so that memory is measured and not a cache.
    def body(t, torch):
        inputs = itertools.cycle([torch.randn(2, n, device="cuda") for _ in range(20)])

        def run():
            b, c = next(inputs)
            torch.add(b, c, alpha=3, out=t["a"])
        return run
    return Case(f"{4 * n} bytes", {"a": ("f32", [n])}, f"triad({4 * n}B -> a)", body, 12 * n)


def draw_reduction(draw, kinds=("inner", "inner", "outer", "outer", "any", "all")):
    """A reduction of an expression over some of the dimensions: the inner ones, the outer ones, or any."""
    name = draw.choice(("sum", "sum", "mean", "max", "min", "argmax", "argmin", "logsumexp", "prod"))
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    rank = draw.randrange(1, 5)
    dims = shape(draw, rank, elements(draw, dtype, 1))
    kind = draw.choice(kinds)
    some = draw.randrange(1, rank + 1)
    axes = {"inner": list(range(rank - some, rank)), "outer": list(range(some)), "all": list(range(rank)),
            "any": sorted(draw.sample(range(rank), some))}[kind]
    if name in ("argmax", "argmin", "prod"):
        axes = axes[-1:]
    kept = [n for axis, n in enumerate(dims) if axis not in axes] or [1]
    out = "i32" if name in ("argmax", "argmin") else dtype
    squares = name in ("sum", "mean") and draw.random() < 0.3
    arrow = " -> y[0]" if len(axes) == rank else " -> y"
    buffers = {"x": (dtype, dims), "y": (out, kept)}
    one = axes[0] if name in ("argmax", "argmin", "prod") else axes

    def body(t, torch):
        if squares:
            return lambda: getattr(torch, name)(t["x"] * t["x"], dim=one)
        return lambda: getattr(torch, {"max": "amax", "min": "amin"}.get(name, name))(t["x"], dim=one)
    return Case(f"{name} of {'squares of ' if squares else ''}{dtype}{dims} over {axes}", buffers,
                f"{name}({'x * x' if squares else 'x'}{arrow}, dims: {axes})", body,
                count(dims) * SIZES[dtype] + count(kept) * SIZES[out])


def draw_column_reduction(draw):
    """A reduction of at least 8 terms for each result that leaves the last dimension, of at least 8 elements."""
    while True:
        case = draw_reduction(draw, ("outer", "any"))
        dims = case.buffers["x"][1]
        terms = count(dims) // count(case.buffers["y"][1]) if "y" in case.buffers else 0
        if terms >= 8 and dims[-1] >= 8 and case.buffers["y"][1][-1] == dims[-1] and not case.what.endswith(f"{len(dims) - 1}]"):
            return case


def draw_norm(draw):
    """A norm of rows, with a residual or without."""
    name = draw.choice(("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"))
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    centred, adds = name.endswith("layer_norm"), name.startswith("add")
    length = draw.choice((size(draw, 2, 100_000), 1024, 2048, 4096, 5120, 8192))
    rows = max(1, elements(draw, dtype, 4 if adds else 2) // length)
    dims = [rows, length]
    buffers = {"x": (dtype, dims), "y": (dtype, dims), "w": (dtype, [length])}
    if adds:
        buffers |= {"r": (dtype, dims), "s": (dtype, dims)}
    if centred:
        buffers["b"] = (dtype, [length])

    def body(t, torch):
        functional = torch.nn.functional

        def run():
            x = torch.add(t["x"], t["r"], out=t["s"]) if adds else t["x"]
            if centred:
                return functional.layer_norm(x, [length], t["w"], t["b"], 1e-5)
            return functional.rms_norm(x, [length], t["w"], 1e-6)
        return run
    return Case(f"{name} {dtype}{dims}", buffers,
                f"{name}(x, {'r, ' if adds else ''}w{', b' if centred else ''} -> y{', s' if adds else ''})", body,
                ((4 if adds else 2) * rows + 1 + centred) * length * SIZES[dtype])


def draw_group_norm(draw):
    dtype = draw.choice(("f32", "bf16", "f16"))
    name = draw.choice(("group_norm", "instance_norm"))
    channels = draw.choice((32, 64, 128, 320, 640, 96))
    side = size(draw, 4, 128)
    samples = max(1, elements(draw, dtype) // (channels * side * side))
    dims = [samples, channels, side, side]
    groups = 32 if name == "group_norm" else channels
    return Case(f"{name} {dtype}{dims}",
                {"x": (dtype, dims), "y": (dtype, dims), "w": (dtype, [channels]), "b": (dtype, [channels])},
                f"{name}(x, w, b -> y{', groups: 32' if name == 'group_norm' else ''})",
                lambda t, torch: (lambda: torch.nn.functional.group_norm(t["x"], groups, t["w"], t["b"], 1e-5)),
                2 * count(dims) * SIZES[dtype])


def draw_loss(draw):
    """The loss of rows of logits, as PyTorch has it without a mean, or a loss of all elements."""
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    name = draw.choice(("cross_entropy", "cross_entropy", "cross_entropy", "mse", "l1", "huber", "kl_div", "hinge"))
    if name == "cross_entropy":
        classes = draw.choice((size(draw, 2, 200_000), 32_000, 50_257, 128_256))
        rows = max(1, elements(draw, dtype, 1) // classes)
        return Case(f"{name} {dtype}[{rows}, {classes}]",
                    {"x": (dtype, [rows, classes]), "t": ("i32", [rows]), "y": (dtype, [rows])}, "cross_entropy(x, t -> y)",
                    lambda t, torch: (lambda target=t["t"].long().clamp(max=classes - 1):
                                      torch.nn.functional.cross_entropy(t["x"], target, reduction="none")),
                    rows * classes * SIZES[dtype] + rows * (4 + SIZES[dtype]))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 2))

    def body(t, torch):
        functional = torch.nn.functional
        if name == "hinge":
            return lambda: torch.relu(1 - t["x"] * t["t"]).mean()
        loss = {"mse": functional.mse_loss, "l1": functional.l1_loss, "huber": functional.huber_loss, "kl_div": functional.kl_div}[name]
        return lambda: loss(t["x"], t["t"], reduction="mean")
    return Case(f"{name} {dtype}{dims}", {"x": (dtype, dims), "t": (dtype, dims), "y": (dtype, [1])}, f"{name}(x, t -> y[0])",
                body, 2 * count(dims) * SIZES[dtype])


def draw_scan(draw):
    name = draw.choice(("cumsum", "cumsum", "cumprod"))
    dtype = draw.choice(("f32", "bf16", "f16", "f64"))
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 2))
    dim = draw.choice((len(dims) - 1, draw.randrange(len(dims))))
    return Case(f"{name} {dtype}{dims} along {dim}", {"x": (dtype, dims), "y": (dtype, dims)}, f"{name}(x -> y, dim: {dim})",
                lambda t, torch: (lambda: getattr(torch, name)(t["x"], dim, out=t["y"])), 2 * count(dims) * SIZES[dtype])


def draw_batch_norm(draw):
    dtype = draw.choice(("f32", "bf16", "f16"))
    channels = draw.choice((32, 64, 128, 256, 512, 96, size(draw, 1, 2048)))
    side = size(draw, 1, 112)
    samples = max(1, elements(draw, dtype) // (channels * side * side))
    dims = [samples, channels, side, side] if side > 1 else [samples, channels]
    return Case(f"{dtype}{dims}",
                {"x": (dtype, dims), "y": (dtype, dims), "w": (dtype, [channels]), "b": (dtype, [channels]),
                 "m": ("f32", [channels]), "v": ("f32", [channels])}, "batch_norm(x, w, b -> y, m, v)",
                lambda t, torch: (lambda: torch.nn.functional.batch_norm(t["x"], None, None, t["w"], t["b"], True, 0.1, 1e-5)),
                3 * count(dims) * SIZES[dtype])


def draw_attention(draw):
    """Training, prefill and decode, with heads that share keys; projections are [batch, positions, heads, d]."""
    dtype = draw.choice(("bf16", "bf16", "f16"))
    kind = draw.choice(("training", "prefill", "decode", "decode"))
    d = draw.choice((64, 128, 128, 80, 96, 256))
    shared = draw.choice((1, 2, 4, 8, 8))
    group = draw.choice((1, 4, 8) if kind != "training" else (1, 1, 4))
    if kind == "decode":
        batch, queries, keys = size(draw, 1, 128), 1, size(draw, 256, 32768)
    else:
        queries = size(draw, 100, 8192)
        batch = size(draw, 1, 8) if kind == "training" else 1
        keys = queries if kind == "training" else queries + size(draw, 1, 8192)
    most = 1 << 28 if kind == "decode" else max(1, (1 << 40) // (queries * keys * group))
    batch = max(1, min(batch, most // (shared * keys * d)))
    causal = kind == "training" and draw.random() < 0.7
    heads = shared * group
    seen = queries * (queries + 1) / 2 if causal else queries * keys

    def body(t, torch):
        functional = torch.nn.functional
        q, k, v = (t[name].transpose(1, 2) for name in "qkv")

        def run():
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
        return run
    return Case(f"{kind} {dtype} batch {batch}, heads {heads}/{shared}, {queries} x {keys}, d {d}{', causal' if causal else ''}, "
                f"{4e-9 * batch * heads * seen * d:.1f} GFLOP",
                {"q": (dtype, [batch, queries, heads, d]), "k": (dtype, [batch, keys, shared, d]), "v": (dtype, [batch, keys, shared, d]),
                 "o": (dtype, [batch, queries, heads, d])},
                f"attention(q, k, v -> o, layout: positions_first{', causal: true' if causal else ''})", body,
                (batch * (2 * heads * queries + 2 * shared * keys) * d) * SIZES[dtype])


def draw_permute(draw):
    """Rows by expert, or back, as Megatron-LM moves tokens without a capacity."""
    dtype = draw.choice(("bf16", "bf16", "f32"))
    width, experts, each = size(draw, 64, 8192), draw.choice((8, 60, 64, 128, 256)), draw.choice((1, 2, 4, 8))
    rows = max(1, min(elements(draw, dtype) // width // each, 1 << 16))
    if draw.random() < 0.5:
        kind = draw.choice(("even", "even", "even", "hot", "zipf"))
        parts, setup = indices("i", rows * each, experts, kind=kind)

        def body(t, torch):
            # `bincount` waits for the device, which a graph cannot hold.
            counts = torch.zeros(experts, dtype=torch.int64, device="cuda")
            ones = torch.ones(t["i"].numel(), dtype=torch.int64, device="cuda")

            def run():
                order = t["i"].sort(stable=True).indices
                return t["x"].index_select(0, order // each), counts.zero_().index_add_(0, t["i"], ones)
            return run
        return Case(f"permute {each} of {experts}, {dtype}[{rows}, {width}], {kind}",
                    {"x": (dtype, [rows, width]), "y": (dtype, [rows * each, width]), "q": ("i32", [rows, each]),
                     "d": ("i32", [experts]), **parts},
                    f"permute(x, view(i, [{rows}, {each}]), experts: {experts} -> y, q, d)", body,
                    2 * rows * each * width * SIZES[dtype] + 8 * rows * each, setup)
    parts, setup = indices("i", rows * each, rows * each)

    def body(t, torch):
        return lambda: (t["y"].index_select(0, t["i"]).view(rows, each, width) * t["w"][..., None]).sum(1)
    return Case(f"unpermute {each}, {dtype}[{rows}, {width}]",
                {"y": (dtype, [rows * each, width]), "x": (dtype, [rows, width]), "w": (dtype, [rows, each]), **parts},
                f"unpermute(y, view(i, [{rows}, {each}]), w -> x)", body,
                (1 + each) * rows * width * SIZES[dtype] + rows * each * (4 + SIZES[dtype]), setup)


def draw_grad_norm(draw):
    dtype = draw.choice(("f32", "bf16", "bf16"))
    tensors = draw.choice((1, 2, 8, 32, 60))
    sizes = [elements(draw, dtype, tensors) for _ in range(tensors)]
    names = [f"g{place}" for place in range(tensors)]
    buffers = {name: (dtype, [size]) for name, size in zip(names, sizes)}
    return Case(f"{tensors} of {dtype}, {sum(sizes)} elements", {**buffers, "y": ("f32", [1])}, f"grad_norm({', '.join(names)} -> y[0])", lambda t, torch: (lambda: torch.nn.utils.get_total_norm([t[name] for name in names])),
                sum(sizes) * SIZES[dtype])


def draw_distance(draw):
    name = draw.choice(("cosine_similarity", "triplet"))
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    inputs = ("a", "b", "d")[:2 if name == "cosine_similarity" else 3]
    length = draw.choice((size(draw, 2, 100_000), 128, 512, 768, 4096))
    rows = max(1, elements(draw, dtype, len(inputs)) // length)
    dims = [rows, length]

    def body(t, torch):
        functional = torch.nn.functional
        if name == "cosine_similarity":
            return lambda: functional.cosine_similarity(t["a"], t["b"], -1)
        return lambda: functional.triplet_margin_loss(t["a"], t["b"], t["d"], reduction="none")
    return Case(f"{name} {dtype}{dims}", {**{one: (dtype, dims) for one in inputs}, "y": (dtype, [rows])},
                f"{name}({', '.join(inputs)} -> y)", body, (len(inputs) * count(dims) + rows) * SIZES[dtype])


def draw_sort(draw):
    dtype = draw.choice(("f32", "f32", "bf16", "i32", "f64"))
    length = min(4_000_000, size(draw, 2, 1_000_000))
    rows = max(1, min(elements(draw, dtype, 4), 1 << 24) // length)
    dims = [rows, length]
    descending = draw.random() < 0.5
    return Case(f"{dtype}{dims}", {"x": (dtype, dims), "v": (dtype, dims), "p": ("i64", dims)},
                f"sort(x -> v, p, descending: {str(descending).lower()})",
                lambda t, torch: (lambda: torch.sort(t["x"], dim=-1, descending=descending, stable=True)),
                count(dims) * (2 * SIZES[dtype] + 8))


DRAWN = {"scaled_gemm": draw_scaled_gemm, "narrow_gemm": draw_narrow_gemm, "grouped_gemm": draw_grouped_gemm, "gemm": draw_gemm, "thin_gemm": draw_thin_gemm, "few_terms_gemm": draw_few_terms_gemm, "odd_gemm": draw_odd_gemm, "odd_grouped_gemm": draw_odd_grouped_gemm, "thin_grouped_gemm": draw_thin_grouped_gemm, "conv": draw_conv, "few_conv": draw_few_conv, "pool": draw_pool, "map": draw_map, "cast": draw_cast, "fill": draw_fill, "memset": draw_memset, "softmax": draw_softmax, "top_k": draw_top_k,
         "transpose": draw_transpose, "gather": draw_gather, "pages": draw_pages, "scatter": draw_scatter, "route": draw_route, "copy": draw_copy,
         "map_several": draw_map_several, "embedding": draw_embedding, "concat": draw_concat, "pad": draw_pad, "rope": draw_rope,
         "dropout": draw_dropout, "adamw": draw_adamw, "sgd": draw_sgd, "triad": draw_triad,
         "reductions": draw_reduction, "column_reductions": draw_column_reduction, "norms": draw_norm, "group_norms": draw_group_norm, "losses": draw_loss, "scans": draw_scan,
         "batch_norm": draw_batch_norm, "distances": draw_distance, "grad_norm": draw_grad_norm, "permute": draw_permute, "attention": draw_attention, "sort": draw_sort}
