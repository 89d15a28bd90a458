"""Two or more programs that compute the same, for alternatives.py, drawn by seed: choices that an author of a workload has."""
from drawn_case import log_uniform, size
from drawn_programs import FUNCTIONS, Program


def started(streams, buffers):
    """A program with these buffers, and their names. Buffers of the device have random contents."""
    program = Program("", streams)
    return program, [program.buffer(*buffer) if buffer[2:] not in ((), ("",)) else program.buffer(*buffer[:2], " = random(1)") for buffer in buffers]


def draw_copies(draw):
    """A copy by an engine or by a kernel, within the device or from or to pinned memory; sometimes beside a map on another stream."""
    rows, columns = size(draw, 1, 4096), size(draw, 64, 4096)
    where = draw.choice((("", ""), ("", ""), (" in pinned", ""), ("", " in pinned")))
    # Rows of a wider matrix have gaps.
    wider = columns + 8 * draw.randrange(1, 64) if draw.random() < 0.4 and not where[0] else columns
    function, beside = draw.choice(FUNCTIONS), draw.random() < 0.5
    elements = size(draw, 1 << 10, 1 << 22)
    made = {}
    for via in ("dma", "kernel"):
        program, (src, dst, x, y) = started(2, [("f32", [rows, wider], where[0]), ("f32", [rows, columns], where[1]),
                                                ("f32", [elements]), ("f32", [elements])])
        program.on(0, f"copy({src}[.., 0..{columns}] -> {dst}, via: {via})" if wider > columns else f"copy({src} -> {dst}, via: {via})")
        if beside:
            program.on(1, f"map({function.format(x)} -> {y})")
        made[via] = program
    return made


def draw_split(draw):
    """A product as a whole, as parts of its columns on one stream, and as parts on streams of their own."""
    parts = draw.choice((2, 3, 4))
    m, k, n = size(draw, 16, 4096), 8 * size(draw, 8, 512), 8 * parts * size(draw, 8, 4096 // 8 // parts)
    buffers = [("bf16", [m, k]), *[("bf16", [k, n // parts]) for _ in range(parts)], *[("bf16", [m, n // parts]) for _ in range(parts)]]
    made = {}
    program, (x, w, y) = started(parts, [("bf16", [m, k]), ("bf16", [k, n]), ("bf16", [m, n])])
    program.on(0, f"gemm({x}, {w} -> {y})")
    made["whole"] = program
    for name in ("parts", "parts on streams"):
        program, (x, *rest) = started(parts, buffers)
        for part in range(parts):
            program.on(part if name != "parts" else 0, f"gemm({x}, {rest[part]} -> {rest[parts + part]})")
        made[name] = program
    return made


def draw_depth(draw):
    """A product, or two halves of its depth of which the second is added."""
    m, k, n = size(draw, 16, 2048), 16 * size(draw, 8, 512), 8 * size(draw, 8, 256)
    program, (x, w, y) = started(1, [("bf16", [m, k]), ("bf16", [k, n]), ("bf16", [m, n])])
    program.on(0, f"gemm({x}, {w} -> {y})")
    made = {"whole": program}
    program, (x, w, y) = started(1, [("bf16", [m, k]), ("bf16", [k, n]), ("bf16", [m, n])])
    program.on(0, f"gemm({x}[.., 0..{k // 2}], {w}[0..{k // 2}] -> {y}) gemm({x}[.., {k // 2}..{k}], {w}[{k // 2}..{k}] -> {y}, accumulate: true)")
    made["halves"] = program
    return made


def draw_batch(draw):
    """Products of equal shapes as one batch, one after the other, and on streams of their own."""
    batch = draw.choice((2, 3, 4, 8))
    m, k, n = 8 * size(draw, 2, 128), 8 * size(draw, 4, 128), 8 * size(draw, 4, 128)
    dtype = draw.choice(("bf16", "bf16", "f16", "f32"))
    made = {}
    for name in ("batch", "in turn", "on streams"):
        program, (x, w, y) = started(batch, [(dtype, [batch, m, k]), (dtype, [batch, k, n]), (dtype, [batch, m, n])])
        if name == "batch":
            program.on(0, f"gemm({x}, {w} -> {y})")
        else:
            for part in range(batch):
                program.on(part if name == "on streams" else 0, f"gemm({x}[{part}], {w}[{part}] -> {y}[{part}])")
        made[name] = program
    return made


def draw_attention(draw):
    """Attention as one operation, or as products with a softmax between them."""
    heads, queries, keys, d = draw.choice((1, 4, 8, 16, 32)), size(draw, 16, 1024), size(draw, 64, 2048), draw.choice((64, 128))
    buffers = [("bf16", [heads, queries, d]), ("bf16", [heads, keys, d]), ("bf16", [heads, keys, d]), ("bf16", [heads, queries, d]),
               *[("bf16", [heads, queries, keys])] * 2]
    program, (q, k, v, o, *_) = started(1, buffers)
    program.on(0, f"attention({q}, {k}, {v} -> {o})")
    made = {"attention": program}
    program, (q, k, v, o, scores, shares) = started(1, buffers)
    program.on(0, f"gemm({q}, {k} -> {scores}, transpose_b: true) softmax({scores} -> {shares}) gemm({shares}, {v} -> {o})")
    made["products"] = program
    return made


def draw_pipeline(draw):
    """Copies to the device, maps and copies back: as a whole, or in chunks on three streams."""
    elements = 64 * size(draw, 1 << 8, 1 << 16)
    function, steps = draw.choice(FUNCTIONS), draw.randrange(1, 4)
    made = {}
    for chunks in (1, 2, 4, 8):
        program, (far, near, result, back) = started(3, [("f32", [elements], " in pinned"), ("f32", [elements]), ("f32", [elements]),
                                                         ("f32", [elements], " in pinned")])
        for chunk in range(chunks):
            part = f"[{chunk * elements // chunks}..{(chunk + 1) * elements // chunks}]"
            program.on(0, f"copy({far}{part} -> {near}{part})")
            for _ in range(steps):
                program.on(1, f"map({function.format(near + part)} -> {result}{part})")
            program.on(2, f"copy({result}{part} -> {back}{part})")
        made[f"chunks {chunks}"] = program
    return made


def draw_chunks(draw):
    """A map or a norm as a whole, and in parts on streams of their own."""
    rows, columns = 8 * size(draw, 4, 1024), size(draw, 64, 8192)
    operation = draw.choice(("map", "softmax", "norm"))
    text = {"map": f"map({draw.choice(FUNCTIONS).format('X')} -> Y)", "softmax": "softmax(X -> Y)", "norm": "rms_norm(X, G -> Y)"}[operation]
    made = {}
    for parts in (1, 2, 4):
        program, (x, y, gain) = started(4, [("f32", [rows, columns]), ("f32", [rows, columns]), ("f32", [columns])])
        for part in range(parts):
            where = f"[{part * rows // parts}..{(part + 1) * rows // parts}]"
            program.on(part, text.replace("X", x + where).replace("Y", y + where).replace("G", gain))
        made[f"parts {parts}"] = program
    return made


def draw_order(draw):
    """Chains on streams of their own, launched in turn or chain by chain, or all on one stream."""
    streams, calls = draw.choice((2, 4, 8)), draw.randrange(2, 7)
    elements = [log_uniform(draw, 1 << 8, 1 << 22) for _ in range(streams)]
    function = draw.choice(FUNCTIONS)
    made = {}
    for name in ("in turn", "by chain", "one stream"):
        program, buffers = started(streams, [("f32", [count]) for count in elements for _ in range(2)])
        places = [(call, stream) for call in range(calls) for stream in range(streams)]
        for call, stream in places if name == "in turn" else sorted(places, key=lambda place: place[1]):
            x, y = buffers[2 * stream + call % 2], buffers[2 * stream + 1 - call % 2]
            program.on(0 if name == "one stream" else stream, f"map({function.format(x)} -> {y})")
        made[name] = program
    return made


def draw_precision(draw):
    """A product of f32 matrices: in f32, in tf32, and in bf16 with casts before and behind."""
    m, k, n = (8 * size(draw, 4, 256) for _ in range(3))
    made = {}
    for name in ("f32", "tf32"):
        program, (x, w, y) = started(1, [("f32", [m, k]), ("f32", [k, n]), ("f32", [m, n])])
        program.on(0, f"gemm({x}, {w} -> {y}, compute: {name})")
        made[name] = program
    program, (x, w, y, short, weights) = started(1, [("f32", [m, k]), ("f32", [k, n]), ("f32", [m, n]), ("bf16", [m, k]), ("bf16", [k, n])])
    program.on(0, f"cast({x} -> {short}) cast({w} -> {weights}) gemm({short}, {weights} -> {y})")
    made["bf16"] = program
    return made


def draw_columns(draw):
    """Sums of columns directly, after a transpose, or as a product with ones."""
    rows, columns = 8 * size(draw, 4, 1024), 8 * size(draw, 4, 512)
    buffers = [("f32", [rows, columns]), ("f32", [columns]), ("f32", [columns, rows]), ("f32", [1, rows], " = ones"), ("f32", [1, columns])]
    texts = {"columns": "sum({0}, dims: [0] -> {1})", "transposed": "transpose({0} -> {2}) sum({2}, dims: [1] -> {1})", "product": "gemm({3}, {0} -> {4})"}
    made = {}
    for name, text in texts.items():
        program, names = started(1, buffers)
        program.on(0, text.format(*names))
        made[name] = program
    return made


def draw_pointwise(draw):
    """A convolution with windows of one element, or a product for each image of its batch in one call."""
    batch, channels, filters, side = size(draw, 1, 32), 8 * size(draw, 1, 64), 8 * size(draw, 1, 64), 8 * size(draw, 1, 8)
    program, (x, w, y) = started(1, [("bf16", [batch, channels, side, side]), ("bf16", [filters, channels, 1, 1]), ("bf16", [batch, filters, side, side])])
    program.on(0, f"conv({x}, {w} -> {y})")
    made = {"conv": program}
    program, (x, w, y) = started(1, [("bf16", [batch, channels, side * side]), ("bf16", [filters, channels]), ("bf16", [batch, filters, side * side])])
    program.on(0, f"gemm({w}, {x} -> {y})")
    made["product"] = program
    return made


def draw_fused(draw):
    """A chain of operations along rows, with `--fuse` and without."""
    rows, columns = size(draw, 16, 8192), 8 * size(draw, 8, 512)
    program, (x, y, gain, total) = started(1, [("bf16", [rows, columns]), ("bf16", [rows, columns]), ("bf16", [columns]), ("f32", [rows])])
    value, texts, number = x, [], len(program.buffers)
    if draw.random() < 0.4:
        w = program.buffer("bf16", [columns, columns])
        texts, value, number = [f"b{number + 1}: gemm({x}, {w})"], f"b{number + 1}", number + 1
    steps = [draw.choice(("map({0} * {1})", "map(gelu({0}))", "map({0} + {2})", "map(tanh({0}))", "softmax({0})", "rms_norm({0}, {1})"))
             for _ in range(draw.randrange(2, 6))]
    for step in steps:
        number += 1
        texts.append(f"b{number}: {step.format(value, gain, x)}")
        value = f"b{number}"
    texts.append(f"map({value} * 2 -> {y})" if draw.random() < 0.6 else f"sum({value}, dims: [1] -> {total})")
    program.on(0, " ".join(texts))
    return {"apart": program, "fused": program}


ALTERNATIVES = {"copies": draw_copies, "split": draw_split, "depth": draw_depth, "batch": draw_batch, "attention": draw_attention,
                "pipeline": draw_pipeline, "chunks": draw_chunks, "order": draw_order, "precision": draw_precision, "columns": draw_columns,
                "pointwise": draw_pointwise, "fused": draw_fused}
