"""Whole programs for programs.py, drawn by seed: several streams, copies beside kernels, products beside other operations, small kernels, many queues."""
import json
import re

from drawn import DRAWN
from drawn_case import log_uniform, size

# Operations beside each other; those whose indices a setup makes are left out.
BESIDE = ("map", "cast", "softmax", "transpose", "copy", "reductions", "column_reductions", "norms", "losses", "scans", "sort", "top_k", "pool",
          "map_several", "concat", "pad", "rope", "batch_norm", "group_norms", "grad_norm", "triad", "fill")
PRODUCTS = ("gemm", "thin_gemm", "gemm", "grouped_gemm")

# Functions of a `map`, from few to many instructions.
FUNCTIONS = ("{0} * 2 + 1", "abs({0})", "gelu({0})", "tanh({0})", "exp({0}) + sqrt(abs({0}))")


class Program:
    """Buffers by name, as declarations behind the colon, and the text of an iteration on streams s[0] to s[streams - 1]."""

    def __init__(self, family, streams):
        self.family, self.streams, self.buffers, self.body = family, streams, {}, []

    def buffer(self, dtype, dims, rest=""):
        name = f"b{len(self.buffers)}"
        self.buffers[name] = f"{dtype}{list(dims)}{rest}"
        return name

    def dims(self, name):
        """The dimensions of a buffer, as a list."""
        return json.loads(re.search(r"\[.*?\]", self.buffers[name])[0])

    def on(self, stream, text):
        self.body.append(f"on s[{stream}] {{ {text} }}")

    def case(self, draw, operations, most):
        """The call of a drawn case that has at most so many bytes, with buffers of this program."""
        while True:
            case = DRAWN[draw.choice(operations)](draw)
            if not case.setup and case.total() <= most and not any(name in case.buffers for name in ("r", "c")):
                break
        names = {name: self.buffer(dtype, dims) for name, (dtype, dims) in case.buffers.items()}
        pattern = r"\b(" + "|".join(map(re.escape, names)) + r")\b(?!:)"
        return re.sub(pattern, lambda found: names[found[0]], case.call)


def chain_of_maps(draw, program, elements, calls, dtype="f32"):
    """Calls of which each reads what the one before has written."""
    x, y = (program.buffer(dtype, [elements], " = random(1)") for _ in range(2))
    texts = []
    for _ in range(calls):
        texts.append(f"map({draw.choice(FUNCTIONS).format(x)} -> {y})")
        x, y = y, x
    return texts


def draw_small(draw):
    """Chains of small kernels on many streams, launched in turn or stream by stream."""
    program = Program("small", draw.choice((2, 4, 8, 16, 32, 64)))
    elements = size(draw, 32, 20_000)
    calls = log_uniform(draw, 2, max(3, 256 // program.streams))
    chains = [chain_of_maps(draw, program, elements, calls) for _ in range(program.streams)]
    if draw.random() < 0.5:
        for call in range(calls):
            for stream, chain in enumerate(chains):
                program.on(stream, chain[call])
    else:
        for stream, chain in enumerate(chains):
            program.on(stream, " ".join(chain))
    return program


def draw_copies(draw):
    """Parts that an engine copies to the device, kernels there, and copies back."""
    program = Program("copies", draw.choice((2, 3, 4)))
    elements = size(draw, 1 << 10, 1 << 23)
    for part in range(draw.randrange(2, 9)):
        host, back = (program.buffer("f32", [elements], " in pinned") for _ in range(2))
        near, result = (program.buffer("f32", [elements]) for _ in range(2))
        stream = part % program.streams
        program.on(stream, f"copy({host} -> {near})")
        for _ in range(draw.randrange(1, 4)):
            program.on(stream, f"map({draw.choice(FUNCTIONS).format(near)} -> {result})")
        if draw.random() < 0.7:
            program.on(stream, f"copy({result} -> {back})")
    return program


def draw_products(draw):
    """Products on one or two streams beside other operations on the rest."""
    program = Program("products", draw.choice((2, 2, 3, 4)))
    for _ in range(draw.randrange(1, 4)):
        program.on(0, program.case(draw, PRODUCTS, 64 << 20))
    for stream in range(1, program.streams):
        for _ in range(draw.randrange(1, 4)):
            program.on(stream, program.case(draw, BESIDE + PRODUCTS[:1], 64 << 20))
    return program


def draw_beside(draw):
    """Drawn operations beside each other, of any size."""
    program = Program("beside", draw.choice((2, 3, 4, 6, 8)))
    most = 1 << draw.randrange(18, 27)
    for stream in range(program.streams):
        for _ in range(draw.randrange(1, 4)):
            program.on(stream, program.case(draw, BESIDE, most))
    return program


def draw_busy(draw):
    """Kernels with many instructions and few bytes beside each other."""
    program = Program("busy", draw.choice((2, 4, 8, 16)))
    elements = size(draw, 1 << 12, 1 << 21)
    for stream in range(program.streams):
        x, y = (program.buffer("f32", [elements], " = random(1)") for _ in range(2))
        text = x
        for _ in range(draw.randrange(2, 9)):
            text = draw.choice(("gelu({0})", "tanh({0})", "exp(-abs({0}))", "sin({0})")).format(text)
        for _ in range(draw.randrange(1, 4)):
            program.on(stream, f"map({text} -> {y})")
    return program


def draw_crossed(draw):
    """Operations that read what others have written on other streams."""
    program = Program("crossed", draw.choice((2, 3, 4, 8)))
    elements = size(draw, 256, 1 << 22)
    made = [program.buffer("f32", [elements], " = random(1)") for _ in range(2)]
    for _ in range(draw.randrange(8, 33)):
        first, second = draw.choice(made[-6:]), draw.choice(made[-6:])
        target = program.buffer("f32", [elements])
        program.on(draw.randrange(program.streams), f"map({first} * 0.5 + {second} -> {target})")
        made.append(target)
    return program


def draw_layers(draw):
    """A network of small layers, a part of its rows on each stream."""
    program = Program("layers", draw.choice((1, 2, 4, 8)))
    rows, width, wide = size(draw, 16, 1024), 8 * size(draw, 8, 192), 8 * size(draw, 16, 400)
    up, down = program.buffer("bf16", [width, wide], " = random(1, 0.02)"), program.buffer("bf16", [wide, width], " = random(1, 0.02)")
    gain = program.buffer("bf16", [width], " = random(1)")
    layers = draw.randrange(1, 4)
    states = [[program.buffer("bf16", [rows, width], " = random(1)") for _ in range(3)] for _ in range(program.streams)]
    hidden = [program.buffer("bf16", [rows, wide]) for _ in range(program.streams)]
    for _ in range(layers):
        for stream in range(program.streams):
            (x, normed, y), h = states[stream], hidden[stream]
            program.on(stream, f"rms_norm({x}, {gain} -> {normed}) gemm({normed}, {up} -> {h}) map(gelu({h}) -> {h}) gemm({h}, {down} -> {y}) "
                               f"map({x} + {y} -> {x})")
    return program


def draw_offload(draw):
    """Products or other kernels on the first stream, beside copies of pinned and pageable memory on the rest."""
    program = Program("offload", draw.choice((2, 3, 4)))
    for _ in range(draw.randrange(1, 5)):
        program.on(0, program.case(draw, draw.choice((PRODUCTS, BESIDE)), 64 << 20))
    for stream in range(1, program.streams):
        outward = draw.random() < 0.5
        for _ in range(draw.randrange(1, 4)):
            near = program.buffer("f32", [size(draw, 1 << 10, 1 << 23)])
            far = program.buffer("f32", program.dims(near), draw.choice((" in pinned", " in pinned", " in host")))
            program.on(stream, f"copy({near} -> {far})" if outward else f"copy({far} -> {near})")
    return program


def draw_queues(draw):
    """Kernels of different lengths on 8 to 64 streams, launched in turn or stream by stream."""
    program = Program("queues", draw.choice((8, 12, 16, 24, 32, 64)))
    calls = log_uniform(draw, 1, max(2, 96 // program.streams))
    each = []
    for _ in range(program.streams):
        elements = log_uniform(draw, 256, 1 << 20)
        texts = chain_of_maps(draw, program, elements, calls)
        if draw.random() < 0.4:
            texts[draw.randrange(calls)] = program.case(draw, ("gemm", "softmax", "reductions", "norms", "copy"), 4 << 20)
        each.append(texts)
    in_turn = draw.random() < 0.5
    places = [(call, stream) for call in range(calls) for stream in range(program.streams)]
    for call, stream in places if in_turn else sorted(places, key=lambda place: place[1]):
        program.on(stream, each[stream][call])
    return program


PROGRAMS = {"small": draw_small, "copies": draw_copies, "products": draw_products, "beside": draw_beside, "busy": draw_busy,
            "crossed": draw_crossed, "layers": draw_layers, "offload": draw_offload, "queues": draw_queues}
