"""Chains of operations for shapes.py, drawn by seed: what `--fuse` merges, beside what `torch.compile` merges."""
import math

from drawn_case import SIZES, Case, count, elements, log_uniform, shape, size

# Functions of an element: aorta's expression and PyTorch's.
UNARY = {
    "relu": ("relu({})", "F.relu({})"), "gelu": ("gelu({})", "F.gelu({})"), "silu": ("silu({})", "F.silu({})"),
    "tanh": ("tanh({})", "torch.tanh({})"), "sigmoid": ("sigmoid({})", "torch.sigmoid({})"), "abs": ("abs({})", "torch.abs({})"),
    "scale": ("{} * 0.7", "{} * 0.7"), "shift": ("{} + 0.25", "{} + 0.25"), "root": ("sqrt(abs({}))", "torch.sqrt(torch.abs({}))"),
    "clamp": ("max(min({}, 1), -1)", "torch.clamp({}, -1, 1)"), "square": ("{} * {}", "{} * {}"),
}
BINARY = ("+", "-", "*")


class Chain:
    """The statements of a chain in both languages, and its buffers."""

    def __init__(self, dtype):
        self.dtype, self.buffers, self.lines, self.body, self.values = dtype, {}, [], [], []

    def input(self, dims):
        name = f"x{len(self.buffers)}"
        self.buffers[name] = (self.dtype, dims)
        return name

    def step(self, ours, theirs):
        name = f"v{len(self.lines)}"
        self.lines.append((name, ours))
        self.body.append(f"{name} = {theirs}")
        return name

    def elementwise(self, draw, value, dims, steps):
        """That many functions of an element; some read a tensor of their own, or a value of the chain once more."""
        known = [value]
        for _ in range(steps):
            if draw.random() < 0.5:
                ours, theirs = UNARY[draw.choice(list(UNARY))]
                value = self.step(f"map({ours.replace('{}', value)})", theirs.replace("{}", value))
            else:
                other = draw.choice(("full", "row", "column", "known"))
                if other == "known":
                    second = draw.choice(known)
                else:
                    second = self.input({"full": dims, "row": dims[-1:], "column": dims[:-1] + [1]}[other])
                text = f"{value} {draw.choice(BINARY)} {second}"
                value = self.step(f"map({text})", text)
            known.append(value)
        return value

    def case(self, what, dims, dtype=None):
        """The case; the last statement writes `y`. A `sync` keeps calls apart, which read the same tensors."""
        self.buffers["y"] = (dtype or self.dtype, dims)
        lines = [f"{name}: {call}" for name, call in self.lines[:-1]]
        last = self.lines[-1][1]
        lines += [f"{last[:-1]} -> y)", "sync()"]
        names = [name for name in self.buffers if name != "y"]
        source = f"def chain({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in self.body) + f"    return v{len(self.body) - 1}\n"
        bytes_moved = sum(SIZES[dtype] * count(dims) for dtype, dims in self.buffers.values())
        return Case(what, self.buffers, "\n".join(lines), lambda t, torch: made(source, [t[name] for name in names], torch),
                    bytes_moved)


def made(source, tensors, torch):
    """PyTorch's function of a source text, on these tensors."""
    context = {"torch": torch, "F": torch.nn.functional}
    exec(source, context)
    chain = context["chain"]
    return lambda: chain(*tensors)


def draw_elementwise(draw):
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    chain = Chain(dtype)
    dims = shape(draw, draw.randrange(1, 4), elements(draw, dtype, 4))
    steps = draw.randrange(3, 10)
    chain.elementwise(draw, chain.input(dims), dims, steps)
    return chain.case(f"{steps} of {dtype}{dims}", dims)


def draw_rowwise(draw):
    """Functions of an element, something along rows, and functions of its result."""
    dtype = draw.choice(("f32", "bf16", "bf16", "f16"))
    chain = Chain(dtype)
    length = size(draw, 64, 16384)
    dims = [max(1, log_uniform(draw, 1 << 16, 1 << 26) // length), length]
    value = chain.elementwise(draw, chain.input(dims), dims, draw.randrange(1, 5))
    kind = draw.choice(("sum", "mean", "max", "softmax", "softmax", "rms_norm", "rms_norm", "layer_norm"))
    what = f"{len(chain.lines)}, {kind} of {dtype}{dims}"
    if kind in ("sum", "mean", "max"):
        theirs = {"sum": "torch.sum({}, dim=1)", "mean": "torch.mean({}, dim=1)", "max": "torch.amax({}, dim=1)"}[kind]
        chain.step(f"{kind}({value}, dims: [1])", theirs.replace("{}", value))
        return chain.case(what, dims[:1])
    if kind == "softmax":
        value = chain.step(f"softmax({value})", f"torch.softmax({value}, dim=-1)")
    else:
        w = chain.input([length])
        if kind == "rms_norm":
            value = chain.step(f"rms_norm({value}, {w})", f"F.rms_norm({value}, [{length}], {w}, 1e-6)")
        else:
            b = chain.input([length])
            value = chain.step(f"layer_norm({value}, {w}, {b})", f"F.layer_norm({value}, [{length}], {w}, {b}, 1e-5)")
    steps = draw.randrange(0, 3)
    chain.elementwise(draw, value, dims, steps)
    return chain.case(f"{what}, {steps}", dims)


def draw_epilogue(draw):
    """A product, and functions of its elements."""
    dtype = draw.choice(("bf16", "bf16", "f16"))
    chain = Chain(dtype)
    m, n, k = (8 * math.ceil(size(draw, 128, 8192) / 8) for _ in range(3))
    a, b = chain.input([m, k]), chain.input([k, n])
    value = chain.step(f"gemm({a}, {b})", f"{a} @ {b}")
    if draw.random() < 0.6:
        bias = chain.input([n])
        value = chain.step(f"map({value} + {bias})", f"{value} + {bias}")
    name = draw.choice(("none", "relu", "gelu", "silu", "any"))
    if name == "any":
        chain.elementwise(draw, value, [m, n], draw.randrange(1, 5))
    elif name != "none":
        ours, theirs = UNARY[name]
        value = chain.step(f"map({ours.replace('{}', value)})", theirs.replace("{}", value))
    if draw.random() < 0.4:
        rest = chain.input([m, n])
        value = f"v{len(chain.lines) - 1}"
        chain.step(f"map({value} + {rest})", f"{value} + {rest}")
    return chain.case(f"{len(chain.lines) - 1} behind {dtype} {m}x{n}x{k}", [m, n])


CHAINS = {"elementwise_chain": draw_elementwise, "rowwise_chain": draw_rowwise, "epilogue_chain": draw_epilogue}
