"""Cases of convolutions and pools, drawn by seed, with what PyTorch computes for them in float64."""
import math
import random

import torch

from operation_case import Case, U, accumulated, shape


def windows(dtype: str, quick: bool):
    draw = random.Random(f"windows {dtype}")
    for _ in range(8 if quick else 24):
        yield from convolutions(draw, dtype, quick)
        yield from pools(draw, dtype, quick)


def convolutions(draw, dtype: str, quick: bool):
    rank = draw.choice((1, 2, 2, 3))
    kernel, stride, dilation, padding, added, x, y = [], [], [], [], [], [], []
    for _ in range(rank):
        kernel.append(draw.choice((1, 2, 3, 5)))
        stride.append(draw.choice((1, 1, 2, 3)))
        dilation.append(draw.choice((1, 1, 2)))
        span = dilation[-1] * (kernel[-1] - 1) + 1
        padding.append(draw.randrange((span + 1) // 2))
        x.append(max(1, span + draw.randrange(12 if quick or rank == 3 else 40) - 2 * padding[-1]))
        y.append((x[-1] + 2 * padding[-1] - span) // stride[-1] + 1)
        added.append(x[-1] + 2 * padding[-1] - (y[-1] - 1) * stride[-1] - span)
    groups, samples = draw.choice((1, 1, 1, 2, 5)), draw.choice((1, 2, 3))
    inputs, outputs = draw.choice((1, 2, 7, 16, 33)), draw.choice((1, 3, 8, 24, 70))
    sizes = {"x": (samples, groups * inputs, *x), "w": (groups * outputs, inputs, *kernel), "y": (samples, groups * outputs, *y)}
    steps = f", stride: {stride}, padding: {padding}, dilation: {dilation}, groups: {groups}"
    narrow, elements, places = dtype in ("f16", "bf16"), math.prod(kernel), samples * math.prod(y)

    def case(label, names, text, expect, depth, channels=0):
        buffers = {name: dtype + shape(*sizes[name]) for name in names}
        buffers |= {"v": dtype + shape(channels)} if channels else {}
        # A library stores the sums before it adds the bias.
        bound = accumulated(dtype, 1 + (depth / 4 if narrow else math.sqrt(depth))) + (2 * U[dtype] if channels else 0)
        return Case(label, dtype, buffers, text, expect, bound)

    functional, lists = torch.nn.functional, (stride, padding, dilation)

    def gradient(t, which):
        mask = [which == 0, which == 1, False]
        return torch.ops.aten.convolution_backward(t.y, t.x if which else torch.empty(sizes["x"], dtype=torch.float64, device=t.y.device),
                                                   t.w if which == 0 else torch.empty(sizes["w"], dtype=torch.float64, device=t.y.device),
                                                   None, *lists, False, [0] * rank, groups, mask)[which]

    biased = draw.random() < 0.5
    yield case("conv", "xwy", f"conv(x, w{', v' if biased else ''} -> y{steps})",
               lambda t: {"y": getattr(functional, f"conv{rank}d")(t.x, t.w, t.v if biased else None, *lists, groups)},
               inputs * elements, groups * outputs if biased else 0)
    yield case("conv", "ywx", f"conv(y, w -> x{steps}, transposed: true, output_padding: {added})",
               lambda t: {"x": gradient(t, 0)}, outputs * elements)
    yield case("conv_weights", "xyw", f"conv_weights(x, y -> w, size: {kernel}{steps})", lambda t: {"w": gradient(t, 1)}, places)


def pools(draw, dtype: str, quick: bool):
    rank, mode = draw.choice((1, 2, 3)), draw.choice(("max", "mean"))
    x = [draw.choice((1, 5, 16, 33) if rank == 3 or quick else (1, 5, 30, 64, 129)) for _ in range(rank)]
    functional, names = torch.nn.functional, {"max": "max", "mean": "avg"}
    lead, more = (draw.choice((1, 3)), draw.choice((1, 6))), {}
    if draw.random() < 0.3:
        y = [draw.choice((1, 2, 3, n)) for n in x]
        name, arguments, options, window = f"adaptive_{names[mode]}_pool{rank}d", (y,), "adaptive: true", math.prod(x)
    else:
        size = [min(n, draw.choice((1, 2, 3, 9))) for n in x]
        stride, padding = [draw.choice((1, 2, 3)) for _ in x], [draw.randrange(n // 2 + 1) for n in size]
        y = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x, padding, size, stride)]
        name, arguments, window = f"{names[mode]}_pool{rank}d", (size, stride, padding), math.prod(size)
        options = f"size: {size}, stride: {stride}, padding: {padding}"
        # PyTorch has no such option for one dimension alone in every function.
        if mode == "mean" and draw.random() < 0.5:
            more, options = {"count_include_pad": False}, options + ", count_padding: false"
    function = lambda values: getattr(functional, name)(values, *arguments, **more)
    buffers = {"x": dtype + shape(*lead, *x), "y": dtype + shape(*lead, *y)}
    options = f"mode: {mode}, {options}"
    exact = mode == "max"
    yield Case("pool", dtype, buffers, f"pool(x -> y, {options})", lambda t: {"y": function(t["x"] if exact else t.x)},
               None if exact else accumulated(dtype, 4 + math.sqrt(window)))

    def gradient(t):
        leaf = t.x.clone().requires_grad_()
        return {"d": torch.autograd.grad(function(leaf), leaf, t.y)[0]}

    yield Case("pool_backward", dtype, {**buffers, "d": buffers["x"]}, f"pool_backward(x, y -> d, {options})", gradient,
               accumulated(dtype, 8 + math.sqrt(window)))
    if exact:
        buffers = {**buffers, "d": buffers["x"], "i": "i32" + shape(*lead, *y)}
        yield Case("pool_backward", dtype, buffers, f"pool(x -> _, i, {options})  pool_backward(x, y, i -> d, {options})", gradient,
                   accumulated(dtype, 8 + math.sqrt(window)))
