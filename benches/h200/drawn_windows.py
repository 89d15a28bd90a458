"""Convolutions and pools for shapes.py, drawn by seed."""
import math

from drawn_case import SIZES, Case, count, log_uniform, size


def spatial_sizes(draw, rank, places):
    """Sizes of about that many elements together."""
    side = max(1, round(places ** (1 / rank)))
    return [size(draw, max(1, side * 0.7), max(1, side * 1.4)) for _ in range(rank)]


def moved(buffers):
    return sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())


def draw_conv(draw):
    """Convolutions as networks have them, and their gradients; some in groups, some of each channel by itself."""
    dtype = draw.choice(("bf16", "bf16", "f16", "f32", "f32"))
    rank = draw.choice((1, 2, 2, 2, 2, 3))
    kind = draw.choice(("plain", "plain", "plain", "groups", "depthwise"))
    kernel = [draw.choice((1, 3, 3, 5, 7) if rank < 3 else (1, 3))] * rank
    stride, dilation = draw.choice((1, 1, 2)), draw.choice((1, 1, 1, 2))
    padding = draw.choice((0, dilation * (kernel[0] - 1) // 2))
    flops = math.exp(draw.uniform(math.log(1e7), math.log(1e11 if dtype != "f32" else 1e10)))
    if kind == "depthwise":
        groups = size(draw, 16, 1024)
        inputs = outputs = 1
    else:
        groups = 1 if kind == "plain" else draw.choice((2, 4, 32))
        inputs, outputs = (max(1, size(draw, 8, 512) // groups) for _ in range(2))
        inputs = draw.choice((inputs, inputs, inputs, 3)) if kind == "plain" else inputs
    each = 2 * groups * inputs * outputs * count(kernel)
    windows = max(4, min(int(flops / each), (1 << 27) // (groups * max(inputs, outputs))))
    samples = max(1, min(64, size(draw, 1, 64), windows // 4))
    span = dilation * (kernel[0] - 1) + 1
    y = spatial_sizes(draw, rank, windows / samples)
    x = [max(1, (n - 1) * stride + span - 2 * padding) for n in y]
    form = draw.choice(("forward", "forward", "dx", "dw"))
    biased = form == "forward" and draw.random() < 0.3
    tf32 = dtype == "f32" and draw.random() < 0.5
    # PyTorch's default adds in any order too.
    return conv(dtype, tf32, kind, form, ([samples, groups * inputs, *x], [groups * outputs, inputs, *kernel]), (stride, padding, dilation, groups),
                biased, ", deterministic: false")


def draw_few_conv(draw):
    """Convolutions with up to four channels on one side, and depthwise ones along one dimension; PyTorch adds in any order, aorta in one."""
    dtype = draw.choice(("bf16", "f16", "f32", "f32"))
    tf32 = dtype == "f32" and draw.random() < 0.5
    kind = draw.choice(("dx", "dw", "forward", "depthwise"))
    if kind == "depthwise":
        channels, length, kernel = log_uniform(draw, 64, 8192), log_uniform(draw, 64, 8192), draw.choice((3, 4))
        samples = max(1, min(log_uniform(draw, 1, 32), (1 << 26) // (channels * length)))
        sizes = ([samples, channels, length], [channels, 1, kernel])
        return conv(dtype, tf32, kind, draw.choice(("forward", "dx")), sizes, (1, kernel - 1, 1, channels), False, "")
    rank, side, stride = draw.choice((1, 2, 2, 2, 3)), draw.choice((1, 3, 3, 5, 7)), draw.choice((1, 2, 2))
    kernel = [min(side, 3) if rank == 3 else side] * rank
    few, many, padding = draw.choice((1, 2, 3, 3, 4)), log_uniform(draw, 16, 512), draw.choice((0, kernel[0] // 2))
    windows = max(256, min(log_uniform(draw, 3e7, 3e9) // (few * many * count(kernel)), (1 << 24) // many))
    samples = max(1, min(log_uniform(draw, 1, 32), windows // 64))
    x = [max(kernel[0], n * stride) for n in spatial_sizes(draw, rank, windows / samples)]
    inputs, outputs = (many, few) if kind == "forward" else (few, many)
    return conv(dtype, tf32, "few", kind, ([samples, inputs, *x], [outputs, inputs, *kernel]), (stride, padding, 1, 1), False, "")


def conv(dtype, tf32, kind, form, sizes, steps, biased, order):
    """A convolution of the sizes of `x` and `w`, or a gradient of it."""
    (x, w), (stride, padding, dilation, groups) = sizes, steps
    rank, kernel = len(x) - 2, w[2:]
    spans = [dilation * (k - 1) + 1 for k in kernel]
    y = [(n + 2 * padding - span) // stride + 1 for n, span in zip(x[2:], spans)]
    dims = {"x": x, "w": w, "y": [x[0], w[0], *y]}
    buffers = {name: (dtype, sizes) for name, sizes in dims.items()}
    if biased:
        buffers["v"] = (dtype, [w[0]])
    options = f"stride: {stride}, padding: {padding}, dilation: {dilation}, groups: {groups}" + (", compute: tf32" if tf32 else "") + order
    added = [n + 2 * padding - (m - 1) * stride - span for n, m, span in zip(x[2:], y, spans)]
    call = {"forward": f"conv(x, w{', v' if biased else ''} -> y, {options})",
            "dx": f"conv(y, w -> x, {options}, transposed: true, output_padding: {added})",
            "dw": f"conv_weights(x, y -> w, size: {kernel}, {options})"}[form]

    def torch_call(t, torch):
        lists = ([stride] * rank, [padding] * rank, [dilation] * rank)
        if form == "forward":
            function, bias = getattr(torch.nn.functional, f"conv{rank}d"), t.get("v")
            body = lambda: function(t["x"], t["w"], bias, *lists, groups)
        else:
            mask = [form == "dx", form == "dw", False]
            body = lambda: torch.ops.aten.convolution_backward(t["y"], t["x"], t["w"], None, *lists, False, [0] * rank, groups, mask)

        def run():
            torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, tf32
            return body()
        return run

    what = f"{form} {kind} {'tf32' if tf32 else dtype} {x} with {w}, {stride}, {padding}, {dilation}{', bias' if biased else ''}"
    return Case(what, buffers, call, torch_call, moved(buffers))


def draw_pool(draw):
    """Pools of fixed and of adaptive windows, and their gradients; those of maxima with the indices of the forward pass, as PyTorch has
    them."""
    dtype, mode = draw.choice(("bf16", "f16", "f32")), draw.choice(("max", "mean"))
    rank, back = draw.choice((1, 2, 2, 3)), draw.random() < 0.4
    samples, channels = size(draw, 1, 64), size(draw, 1, 256)
    places = max(64, log_uniform(draw, 1 << 14, 1 << 26) // (samples * channels))
    x = [max(8, n) for n in spatial_sizes(draw, rank, places)]
    adaptive = draw.random() < 0.3
    if adaptive:
        y = [draw.choice((1, 1, 4, 7)) for _ in x]
        options = f"mode: {mode}, adaptive: true"
    else:
        window, stride = draw.choice((2, 3, 3, 5)), draw.choice((1, 2, 2, 3))
        padding = draw.choice((0, window // 2))
        y = [(n + 2 * padding - window) // stride + 1 for n in x]
        options = f"mode: {mode}, size: {window}, stride: {stride}, padding: {padding}"
    shapes = {"x": [samples, channels, *x], "y": [samples, channels, *y]}
    buffers = {name: (dtype, sizes) for name, sizes in shapes.items()}
    if back:
        buffers["d"] = (dtype, shapes["x"])
    call, setup = f"pool_backward(x, y -> d, {options})" if back else f"pool(x -> y, {options})", ""
    if back and mode == "max":
        buffers["p"] = ("i32", shapes["y"])
        call, setup = f"pool_backward(x, y, p -> d, {options})", f"pool(x -> _, p, {options})"

    def torch_call(t, torch):
        names = {"max": "max", "mean": "avg"}
        function = getattr(torch.nn.functional, f"{'adaptive_' if adaptive else ''}{names[mode]}_pool{rank}d")
        arguments = (y,) if adaptive else (window, stride, padding)
        if not back:
            return lambda: function(t["x"], *arguments)
        # Backward runs on the stream of the forward, which the first call chooses.
        leaf, results = t["x"].requires_grad_(), []

        def back_of():
            if not results:
                results.append(function(leaf, *arguments))
            return torch.autograd.grad(results[0], leaf, t["y"], retain_graph=True)
        return back_of

    what = f"{'gradient of ' if back else ''}{mode} {dtype} {shapes['x']} to {y}"
    return Case(what, buffers, call, torch_call, moved(buffers) - (SIZES[dtype] * count(shapes["x"]) if back else 0), setup)
