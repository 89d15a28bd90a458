"""Gradients of operations for shapes.py, drawn by seed: the backward of each operation beside PyTorch's autograd."""
from drawn import (draw_attention, draw_batch_norm, draw_concat, draw_distance, draw_dropout, draw_embedding, draw_gather, draw_group_norm,
                   draw_loss, draw_norm, draw_pad, draw_permute, draw_reduction, draw_rope, draw_scan, draw_scatter, draw_softmax,
                   draw_sort, draw_top_k, draw_transpose)
from drawn_case import SIZES, Case, count, elements, shape, size
from drawn_windows import draw_conv, draw_few_conv, draw_pool


def gradient(case, forward, wanted, outputs=("y",), bytes_read=None, exact=True, zeros=()):
    """The gradients of `wanted` inputs of an operation, from those of its outputs.

    `case` is the drawn operation, `forward` computes its results from PyTorch's tensors. `_` skips an input. `bytes_read` are those of
    the operands that the backward needs, by default of `wanted`. Results that are not `exact` differ from PyTorch's by the choice among
    equal values or by random numbers. Gradients of `zeros` are zero; PyTorch's have errors of rounding."""
    kept = [name for name in wanted if name != "_"]
    given = [name for name in outputs if name != "0"]
    buffers = {**case.buffers, **{f"d{name}": case.buffers[name] for name in kept + given}}
    scalar = f"-> {given[0]}[0]" in case.call
    slopes = ["0" if name == "0" else f"d{name}[0]" if scalar else f"d{name}" for name in outputs]

    def body(t, torch):
        leaves = {**t, **{name: t[name].detach().requires_grad_() for name in kept}}
        results = forward(leaves, torch)
        results = results if isinstance(results, tuple) else (results,)
        slopes = [t[f"d{name}"].reshape(result.shape) for name, result in zip(given, results)]
        given_storages = [slope.untyped_storage().data_ptr() for slope in slopes]

        def stored(part):
            """A gradient in memory of its own: PyTorch's may be a view of a given one, aorta writes it."""
            is_view = part.untyped_storage().data_ptr() in given_storages or not part.is_contiguous()
            return part.clone(memory_format=torch.contiguous_format) if is_view else part
        return lambda: [stored(part) for part in
                        torch.autograd.grad(results, [leaves[name] for name in kept], slopes, retain_graph=True)]
    total = lambda names: sum(SIZES[case.buffers[name][0]] * count(case.buffers[name][1]) for name in names)
    moved = total(kept) + total(given) + (total(kept) if bytes_read is None else total(bytes_read))
    made = Case(case.what, buffers, f"grad(f, {', '.join(slopes)} -> {', '.join(name if name == '_' else f'd{name}' for name in wanted)})",
                body, moved, case.setup)
    made.forward, made.gradients = f"f: {case.call}", [f"d{name}" for name in kept] if exact else []
    made.zeros = [f"d{name}" for name in zeros]
    return made


def grad_softmax(draw):
    return gradient(draw_softmax(draw), lambda t, torch: torch.softmax(t["x"], -1), ["x"], bytes_read=["y"])


def grad_norm(draw):
    case = draw_norm(draw)
    adds, centred = "r" in case.buffers, "b" in case.buffers
    length = case.buffers["w"][1]

    def forward(t, torch):
        functional = torch.nn.functional
        x = t["x"] + t["r"] if adds else t["x"]
        y = functional.layer_norm(x, length, t["w"], t["b"], 1e-5) if centred else functional.rms_norm(x, length, t["w"], 1e-6)
        return (y, x) if adds else y
    wanted = ["x", *(["_"] if adds else []), "w", *(["b"] if centred else [])]
    # A row of one element equals its mean.
    zeros = [] if not centred or length != [1] else ["w"] if adds else ["x", "w"]
    return gradient(case, forward, wanted, ("y", "s") if adds else ("y",), bytes_read=["s" if adds else "x", "w"], zeros=zeros)


def grad_group_norm(draw):
    case = draw_group_norm(draw)
    groups = 32 if case.what.startswith("group") else case.buffers["x"][1][1]
    return gradient(case, lambda t, torch: torch.nn.functional.group_norm(t["x"], groups, t["w"], t["b"], 1e-5), ["x", "w", "b"],
                    bytes_read=["x", "w"],
                    # A group of one element equals its mean.
                    zeros=["x", "w"] if count(case.buffers["x"][1][1:]) == groups else [])


def grad_batch_norm(draw):
    return gradient(draw_batch_norm(draw),
                    lambda t, torch: torch.nn.functional.batch_norm(t["x"], None, None, t["w"], t["b"], True, 0.1, 1e-5), ["x", "w", "b"],
                    ("y", "0", "0"), bytes_read=["x", "w"])


def grad_loss(draw):
    case = draw_loss(draw)
    name = case.what.split()[0]

    def forward(t, torch):
        functional = torch.nn.functional
        if name == "cross_entropy":
            target = t["t"].long().clamp(max=t["x"].shape[1] - 1)
            return functional.cross_entropy(t["x"], target, reduction="none")
        if name == "hinge":
            return torch.relu(1 - t["x"] * t["t"]).mean()
        loss = {"mse": functional.mse_loss, "l1": functional.l1_loss, "huber": functional.huber_loss, "kl_div": functional.kl_div}[name]
        return loss(t["x"], t["t"])
    return gradient(case, forward, ["x"], bytes_read=["t"] if name == "kl_div" else ["x", "t"],
                    # A class beyond the last has no loss, and PyTorch refuses it.
                    exact=name != "cross_entropy" or case.buffers["x"][1][1] >= 100)


def grad_reduction(draw):
    while True:
        case = draw_reduction(draw)
        name, axes = case.what.split()[0], eval(case.what.split(" over ")[1])
        # Indices have no gradient. PyTorch's gradient of `prod` waits for the device, which a graph cannot hold.
        if name not in ("argmax", "argmin", "prod"):
            break
    squares = "squares" in case.what

    def forward(t, torch):
        x = t["x"] * t["x"] if squares else t["x"]
        function = getattr(torch, {"max": "amax", "min": "amin"}.get(name, name))
        return function(x, dim=axes)
    return gradient(case, forward, ["x"], bytes_read=[] if name in ("sum", "mean") and not squares else ["x"],
                    exact=name not in ("max", "min"))


def grad_scan(draw):
    while True:
        case = draw_scan(draw)
        # PyTorch's gradient of `cumprod` waits for the device, which a graph cannot hold.
        if case.what.startswith("cumsum"):
            dim = int(case.what.split()[-1])
            return gradient(case, lambda t, torch: torch.cumsum(t["x"], dim), ["x"], bytes_read=[])


def grad_map(draw):
    """A function of a tensor, a gate, and products and sums with a tensor that is repeated along some dimensions or has gaps."""
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    kind = draw.choice(("unary", "gate", "gate", "row", "row", "column", "axis", "add", "slice"))
    dims = shape(draw, draw.randrange(1, 5), elements(draw, dtype, 5))
    if kind == "unary":
        name = draw.choice(("gelu", "silu", "exp", "relu", "tanh", "sigmoid"))
        case = Case(f"{name} {dtype}{dims}", {"x": (dtype, dims), "y": (dtype, dims)}, f"map({name}(x) -> y)", None, 0)
        return gradient(case, lambda t, torch: (getattr(torch.nn.functional, name) if name in ("gelu", "silu") else getattr(torch, name))(t["x"]),
                        ["x"])
    if kind == "gate":
        case = Case(f"silu(x) * b {dtype}{dims}", {"x": (dtype, dims), "b": (dtype, dims), "y": (dtype, dims)}, "map(silu(x) * b -> y)", None, 0)
        return gradient(case, lambda t, torch: torch.nn.functional.silu(t["x"]) * t["b"], ["x", "b"])
    axis = draw.randrange(len(dims))
    other = {"row": [1] * (len(dims) - 1) + dims[-1:], "column": dims[:-1] + [1],
             "axis": [n if i == axis else 1 for i, n in enumerate(dims)],
             "add": dims[-1:], "slice": dims}[kind]
    if kind == "add":
        case = Case(f"x + b {dtype}{dims} + {other}", {"x": (dtype, dims), "b": (dtype, other), "y": (dtype, dims)}, "map(x + b -> y)", None, 0)
        return gradient(case, lambda t, torch: t["x"] + t["b"], ["_", "b"], bytes_read=[])
    if kind == "slice":
        wide = list(dims)
        wide[axis] += draw.randrange(1, 9)
        index = ", ".join(f"0..{dims[axis]}" if i == axis else ".." for i in range(len(dims)))
        where = tuple(slice(0, dims[axis]) if i == axis else slice(None) for i in range(len(dims)))
        case = Case(f"x[{index}] * b {dtype}{wide}", {"x": (dtype, wide), "b": (dtype, dims), "y": (dtype, dims)}, f"map(x[{index}] * b -> y)", None, 0)
        return gradient(case, lambda t, torch: t["x"].detach()[where] * t["b"], ["_", "b"], bytes_read=["b"])
    case = Case(f"x * b {dtype}{dims} * {other}", {"x": (dtype, dims), "b": (dtype, other), "y": (dtype, dims)}, "map(x * b -> y)", None, 0)
    return gradient(case, lambda t, torch: t["x"] * t["b"], ["x", "b"])


def grad_gather(draw):
    return gradient(draw_gather(draw), lambda t, torch: torch.index_select(t["x"], 0, t["i"]), ["x"], bytes_read=["i"])


def grad_embedding(draw):
    return gradient(draw_embedding(draw), lambda t, torch: torch.nn.functional.embedding(t["i"], t["x"]), ["x"], bytes_read=["i"])


def grad_scatter(draw):
    return gradient(draw_scatter(draw), lambda t, torch: torch.zeros_like(t["y"]).index_add(0, t["i"], t["x"]), ["x"], bytes_read=["i"])


def grad_rope(draw):
    def forward(t, torch):
        half = t["cos"].shape[-1]
        cos, sin = (torch.cat((t[name], t[name]), -1) for name in ("cos", "sin"))
        turned = torch.cat((-t["x"][..., half:], t["x"][..., :half]), -1)
        return t["x"] * cos + turned * sin
    return gradient(draw_rope(draw), forward, ["x"], bytes_read=["cos", "sin"])


def grad_dropout(draw):
    return gradient(draw_dropout(draw), lambda t, torch: torch.nn.functional.dropout(t["x"], 0.1), ["x"], bytes_read=[], exact=False)


def grad_concat(draw):
    while True:
        case = draw_concat(draw)
        if case.buffers["y"][0] not in ("u8", "i64"):
            break
    names = [name for name in case.buffers if name.startswith("x")]
    axis = int(case.what.split()[-1])

    def forward(t, torch):
        return torch.cat([t[name] for name in names], axis)
    return gradient(case, forward, names, bytes_read=[])


def grad_pad(draw):
    while True:
        case = draw_pad(draw)
        if case.buffers["y"][0] != "u8":
            break
    before, after = (eval(part) for part in (case.what.split(" by ")[1].replace("], [", "];[")).split(";"))
    sides = [side for pair in zip(reversed(before), reversed(after)) for side in pair]
    made = gradient(case, lambda t, torch: torch.nn.functional.pad(t["x"], sides), ["x"], bytes_read=[])
    made.bytes = 2 * count(case.buffers["x"][1]) * SIZES[case.buffers["x"][0]]
    return made


def grad_transpose(draw):
    while True:
        case = draw_transpose(draw)
        if case.buffers["y"][0] != "u8":
            break
    order = eval(case.what.split(" by ")[1])
    return gradient(case, lambda t, torch: t["x"].permute(order).contiguous(), ["x"], bytes_read=[])


def grad_top_k(draw):
    case = draw_top_k(draw)
    k = case.buffers["v"][1][1]
    return gradient(case, lambda t, torch: torch.topk(t["x"], k, dim=-1)[0], ["x"], ("v",), bytes_read=["i"], exact=False)


def grad_sort(draw):
    while True:
        case = draw_sort(draw)
        if case.buffers["v"][0] != "i32":
            break
    descending = "descending: true" in case.call
    return gradient(case, lambda t, torch: torch.sort(t["x"], dim=-1, descending=descending, stable=True)[0], ["x"], ("v",), bytes_read=["p"])


def grad_permute(draw):
    case = draw_permute(draw)
    if case.what.startswith("permute"):
        each = case.buffers["q"][1][1]
        return gradient(case, lambda t, torch: t["x"].index_select(0, t["i"].sort(stable=True).indices // each), ["x"], bytes_read=["q"])
    rows, each = case.buffers["w"][1]
    width = case.buffers["x"][1][1]
    return gradient(case, lambda t, torch: (t["y"].index_select(0, t["i"]).view(rows, each, width) * t["w"][..., None]).sum(1),
                    ["y", "_", "w"], ("x",), bytes_read=["i", "y", "w"])


def grad_distance(draw):
    case = draw_distance(draw)

    def forward(t, torch):
        functional = torch.nn.functional
        if "d" not in case.buffers:
            return functional.cosine_similarity(t["a"], t["b"], -1)
        return functional.triplet_margin_loss(t["a"], t["b"], t["d"], reduction="none")
    return gradient(case, forward, [name for name in "abd" if name in case.buffers])


def grad_attention(draw):
    while True:
        case = draw_attention(draw)
        if case.what.startswith("training"):
            break
    causal = "causal" in case.what
    group = case.buffers["q"][1][2] // case.buffers["k"][1][2]

    def forward(t, torch):
        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
        return o.transpose(1, 2)
    return gradient(case, forward, ["q", "k", "v"], ("o", "0"), bytes_read=["q", "k", "v", "o"])


def grad_gemm(draw):
    """A layer with a bias and an activation."""
    dtype = draw.choice(("bf16", "bf16", "f16"))
    rows, depth, columns = size(draw, 16, 16384), 8 * size(draw, 8, 1024), 8 * size(draw, 8, 1024)
    epilogue = draw.choice(("none", "relu", "gelu", "silu"))
    what = f"{epilogue} {dtype} {rows} x {columns} x {depth}"
    buffers = {"x": (dtype, [rows, depth]), "w": (dtype, [depth, columns]), "b": (dtype, [columns]), "y": (dtype, [rows, columns])}
    case = Case(what, buffers, f"gemm(x, w, b -> y{'' if epilogue == 'none' else f', epilogue: {epilogue}'})", None, 0)

    def forward(t, torch):
        y = torch.addmm(t["b"], t["x"], t["w"])
        return y if epilogue == "none" else getattr(torch.nn.functional, epilogue)(y)
    return gradient(case, forward, ["x", "w", "b"])


def grad_conv(draw):
    """Convolutions as networks have them, and those with few channels on one side."""
    while True:
        case = draw.choice((draw_conv, draw_few_conv))(draw)
        if case.call.startswith("conv(x"):
            break
    return gradient(case, lambda t, torch: case.torch(t, torch)(), [name for name in "xwv" if name in case.buffers])


def grad_pool(draw):
    while True:
        case = draw_pool(draw)
        if "d" not in case.buffers:
            break
    return gradient(case, lambda t, torch: case.torch(t, torch)(), ["x"], bytes_read=["x"] if case.what.startswith("max") else [])


GRADIENTS = {"grad_softmax": grad_softmax, "grad_norms": grad_norm, "grad_group_norms": grad_group_norm, "grad_batch_norm": grad_batch_norm,
             "grad_losses": grad_loss, "grad_reductions": grad_reduction, "grad_map": grad_map, "grad_scans": grad_scan,
             "grad_permute": grad_permute, "grad_sort": grad_sort, "grad_top_k": grad_top_k, "grad_gather": grad_gather,
             "grad_embedding": grad_embedding, "grad_scatter": grad_scatter, "grad_rope": grad_rope, "grad_dropout": grad_dropout,
             "grad_concat": grad_concat, "grad_pad": grad_pad, "grad_transpose": grad_transpose, "grad_distances": grad_distance,
             "grad_gemm": grad_gemm, "grad_conv": grad_conv, "grad_pool": grad_pool, "grad_attention": grad_attention}


def grad_any(draw):
    """The gradient of any operation, so that one workload file measures all of them."""
    name = draw.choice([name for name in GRADIENTS if name != "gradients"])
    case = GRADIENTS[name](draw)
    case.what = f"{name.removeprefix('grad_')}: {case.what}"
    return case


GRADIENTS["gradients"] = grad_any
