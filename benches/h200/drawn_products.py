"""Matrix products for shapes.py, drawn by seed."""
import math

from drawn_case import SIZES, Case, count, fastest, log_uniform, size


KINDS = ("plain", "accumulate", "bias", "relu", "gelu_tanh", "silu")


def draw_gemm(draw):
    """Products with what may follow them: a bias, a function, the sum with what the output held."""
    dtype = draw.choice(("bf16", "bf16", "f16", "f32"))
    flops = math.exp(draw.uniform(math.log(1e7), math.log(2e11 if dtype != "f32" else 2e10)))
    m, n = (size(draw, 1, 16384) for _ in range(2))
    k = max(1, min(16384, int(flops / (2 * m * n))))
    k = k if draw.random() < 0.3 else max(8, k // 8 * 8)
    turned = draw.random() < 0.5
    kind = draw.choice(KINDS)
    return gemm(dtype, (m, n, k), (False, turned), kind)


def draw_thin_gemm(draw):
    """Products of a matrix with up to 16 vectors, which are rows or columns."""
    dtype = draw.choice(("bf16", "f16", "f32"))
    thin, wide, k = draw.choice((1, 1, 2, 3, 4, 5, 8, 8, 12, 16)), log_uniform(draw, 64, 32768), log_uniform(draw, 64, 32768)
    k = max(64, min(k, (1 << 27) // wide))
    wide, k = (x if draw.random() < 0.3 else max(8, x // 8 * 8) for x in (wide, k))
    m, n = (thin, wide) if draw.random() < 0.5 else (wide, thin)
    return gemm(dtype, (m, n, k), (draw.random() < 0.25, draw.random() < 0.5), draw.choice(("plain", *KINDS)))


def draw_few_terms_gemm(draw):
    """Thin products of few terms: many points, or rows of features, with up to four vectors."""
    dtype = draw.choice(("bf16", "f16", "f32", "f32"))
    thin, wide, k = draw.choice((1, 2, 3, 4)), log_uniform(draw, 1000, 1 << 20), log_uniform(draw, 2, 256)
    k = k if draw.random() < 0.4 else max(4, k // 4 * 4)
    wide = min(wide, (1 << 26) // k)
    by_columns = draw.random() < 0.3
    m, n = (thin, wide) if by_columns else (wide, thin)
    return gemm(dtype, (m, n, k), (False, by_columns or draw.random() < 0.5), draw.choice(KINDS))


def odd(draw, low, high):
    """A size that few kernels are made for: one, two, odd, prime, or a multiple of two or four but not of eight."""
    n = log_uniform(draw, low, high)
    kind = draw.randrange(6)
    if kind == 0:
        return min(n, draw.choice((1, 2)))
    if kind == 1:
        return n // 8 * 8 + draw.choice((2, 4, 6))
    if kind == 2:
        return next(p for p in range(n, 2, -1) if all(p % d for d in range(2, math.isqrt(p) + 1))) if n > 2 else 2
    return n | 1


def draw_odd_gemm(draw):
    """Products of odd sizes: at least two of rows, columns and depth are odd, prime, one, two or no multiples of eight."""
    dtype = draw.choice(("bf16", "bf16", "f16", "f16", "f32", "tf32"))
    flops = math.exp(draw.uniform(math.log(3e6), math.log(1e11 if dtype != "f32" else 1e10)))
    sizes = [odd(draw, 1, 8192), odd(draw, 1, 8192)]
    longest = max(2, min(32768, int(flops / (2 * sizes[0] * sizes[1]))))
    sizes.append(odd(draw, max(1, longest // 4), longest))
    even = draw.randrange(6)
    sizes = [max(8, x // 8 * 8) if place == even else x for place, x in enumerate(sizes)]
    draw.shuffle(sizes)
    m, n, k = sizes
    batch = draw.choice((1, 1, 1, draw.randrange(2, 33)))
    batch = max(1, min(batch, (1 << 27) // max(m * k, k * n, m * n)))
    turned = (draw.random() < 0.25, draw.random() < 0.5)
    kind = draw.choice(("plain", "accumulate", "bias", "relu", "gelu_tanh", "gelu", "silu")) if batch == 1 else draw.choice(("plain", "accumulate"))
    return gemm(dtype, (m, n, k), turned, kind, batch)


def draw_odd_grouped_gemm(draw):
    """Grouped products with rows of odd lengths."""
    dtype = draw.choice(("bf16", "f16"))
    groups = draw.choice((1, 2, 3, log_uniform(draw, 1, 64)))
    k, n = (odd(draw, 16, 8192) for _ in range(2))
    groups = max(1, min(groups, (1 << 27) // (k * n)))
    tokens = max(1, min(log_uniform(draw, 16, 1 << 15), (1 << 27) // (k + n), int(1e12 / (2 * k * n))))
    form = draw.choice(("rows", "turned", "depth"))
    return grouped_gemm(dtype, form, groups, tokens, draw.choice((1, draw.uniform(0.3, 1))), k, n)


def draw_thin_grouped_gemm(draw):
    """Grouped products that memory limits: groups of few columns, of few terms, or of few rows."""
    dtype = draw.choice(("bf16", "bf16", "f16"))
    groups = draw.choice((1, 2, 3, log_uniform(draw, 2, 64)))
    form = draw.choice(("rows", "turned", "depth"))
    wide, few = log_uniform(draw, 64, 8192), draw.choice((1, 2, 3, 4, log_uniform(draw, 5, 32)))
    wide = wide if draw.random() < 0.3 else max(8, wide // 8 * 8)
    kind = draw.choice(("columns", "terms", "rows"))
    k, n = {"columns": (wide, few), "terms": (few, wide), "rows": (wide, max(8, log_uniform(draw, 64, 8192) // 8 * 8))}[kind]
    groups = max(1, min(groups, (1 << 27) // (k * n)))
    tokens = groups * few if kind == "rows" else max(groups, min(log_uniform(draw, 256, 1 << 19), (1 << 27) // (k + n)))
    return grouped_gemm(dtype, form, groups, tokens, draw.choice((1, draw.uniform(0.3, 1))), k, n)


def gemm(dtype, sizes, turned, kind, batch=1):
    m, n, k = sizes
    lead = [batch] if batch > 1 else []
    a, b = [k, m] if turned[0] else [m, k], [n, k] if turned[1] else [k, n]
    by_tf32, kept = dtype == "tf32", "f32" if dtype == "tf32" else dtype
    buffers = {"a": (kept, lead + a), "b": (kept, lead + b), "y": (kept, [*lead, m, n])}
    if kind not in ("plain", "accumulate"):
        buffers["v"] = (kept, [n])
    bias = ", v" if "v" in buffers else ""
    options = "".join(f", {name}: true" for name, is_turned in zip(("transpose_a", "transpose_b"), turned) if is_turned)
    options += ", accumulate: true" if kind == "accumulate" else ""
    options += f", epilogue: {kind}" if kind in ("relu", "gelu", "gelu_tanh", "silu") else ""
    options += ", compute: tf32" if by_tf32 else ""

    def torch_call(t, torch):
        x, w = t["a"].mT if turned[0] else t["a"], t["b"].mT if turned[1] else t["b"]

        def call():
            if kind == "plain":
                return torch.matmul(x, w, out=t["y"])
            if kind == "accumulate":
                return t["y"].baddbmm_(x, w) if batch > 1 else t["y"].addmm_(x, w)
            if kind == "bias":
                return torch.addmm(t["v"], x, w)
            if kind in ("gelu", "silu"):
                return getattr(torch.nn.functional, kind)(torch.addmm(t["v"], x, w))
            # Both functions are epilogues of cuBLASLt where PyTorch can use them.
            return torch.ops.aten._addmm_activation(t["v"], x, w, use_gelu=kind == "gelu_tanh")

        def with_tf32():
            torch.backends.cuda.matmul.allow_tf32 = by_tf32
            try:
                return call()
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False
        return with_tf32 if by_tf32 else call

    moved = sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())
    names = ["turned " if one else "" for one in turned]
    batches = f"{batch} of " if batch > 1 else ""
    return Case(f"{kind} {dtype} {batches}{names[0]}[{m}, {k}] x {names[1]}[{k}, {n}]", buffers, f"gemm(a, b{bias} -> y{options})", torch_call, moved)


def draw_scaled_gemm(draw):
    """Products of 8-bit floats in the form that cuBLASLt has on Hopper: rows of both factors along the depth."""
    flops = math.exp(draw.uniform(math.log(1e8), math.log(1e12)))
    m = size(draw, 1, 16384)
    n = max(16, size(draw, 16, 16384) // 16 * 16)
    k = max(16, min(16384, int(flops / (2 * m * n))) // 16 * 16)
    a, b = draw.choice((("e4m3", "e4m3"), ("e4m3", "e4m3"), ("e5m2", "e4m3"), ("i8", "i8")))
    if a == "i8":
        # PyTorch's product of whole numbers is for more than 16 rows.
        m = max(24, m // 8 * 8)
        return Case(f"i8 [{m}, {k}] x [{k}, {n}]", {"a": (a, [m, k]), "b": (b, [n, k]), "y": ("i32", [m, n])},
                    "gemm(a, b -> y, transpose_b: true)", lambda t, torch: (lambda: torch._int_mm(t["a"], t["b"].T)),
                    m * k + n * k + 4 * m * n)
    kind = draw.random()
    if kind < 0.3 and (a, b) == ("e4m3", "e4m3"):
        # Factors of blocks: PyTorch and cuBLASLt want rows of factors in multiples of 16 bytes.
        m, n, k = max(16, m // 16 * 16), max(128, n // 128 * 128), max(512, k // 512 * 512)
        buffers = {"a": (a, [m, k]), "b": (b, [n, k]), "s": ("f32", [k // 128, m]), "v": ("f32", [n // 128, k // 128]),
                   "y": ("bf16", [m, n])}

        def blocks(t, torch):
            s, v, w = t["s"].abs().t(), t["v"].abs().t(), t["b"].T
            return lambda: torch._scaled_mm(t["a"], w, scale_a=s, scale_b=v, out_dtype=torch.bfloat16)

        moved = sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())
        return Case(f"{a} x {b} [{m}, {k}] x [{k}, {n}], factors of blocks", buffers,
                    "scaled_gemm(a, b, s, v -> y, transpose_b: true)", blocks, moved)
    each = kind > 0.6
    rows, columns = (m, n) if each else (1, 1)
    buffers = {"a": (a, [m, k]), "b": (b, [n, k]), "s": ("f32", [rows]), "v": ("f32", [columns]), "y": ("bf16", [m, n])}

    def torch_call(t, torch):
        scales = (t["s"].abs().reshape(rows, 1), t["v"].abs().reshape(1, columns)) if each else (t["s"].abs()[0], t["v"].abs()[0])
        w = t["b"].T
        return lambda: torch._scaled_mm(t["a"], w, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16)

    moved = sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())
    return Case(f"{a} x {b} [{m}, {k}] x [{k}, {n}], {'a factor for each row and column' if each else 'two factors'}", buffers,
                "scaled_gemm(a, b, s, v -> y, transpose_b: true)", torch_call, moved)


def draw_narrow_gemm(draw):
    """Products of 8-bit matrices of any sizes, each turned or not; PyTorch copies them into the form that cuBLASLt has."""
    flops = math.exp(draw.uniform(math.log(1e8), math.log(1e12)))
    m, n = size(draw, 1, 16384), size(draw, 1, 16384)
    k = max(1, min(16384, int(flops / (2 * m * n))))
    k = k if draw.random() < 0.5 else max(16, k // 16 * 16)
    turned = [draw.random() < 0.5, draw.random() < 0.5]
    kind = draw.choice(("two factors", "a factor for each row and column", "e5m2", "i8"))
    return narrow_gemm((m, n, k), turned, kind)


def narrow_gemm(sizes, turned, kind):
    m, n, k = sizes
    a, b = [k, m] if turned[0] else [m, k], [n, k] if turned[1] else [k, n]
    first, second = {"i8": ("i8", "i8"), "e5m2": ("e5m2", "e4m3")}.get(kind, ("e4m3", "e4m3"))
    buffers = {"a": (first, a), "b": (second, b), "y": ("i32" if kind == "i8" else "bf16", [m, n])}
    each = kind.startswith("a factor")
    if kind != "i8":
        buffers |= {"s": ("f32", [m if each else 1]), "v": ("f32", [n if each else 1])}
    options = "".join(f", {name}: true" for name, is_turned in zip(("transpose_a", "transpose_b"), turned) if is_turned)

    def torch_call(t, torch):
        def padded(matrix, rows, columns):
            matrix = matrix.contiguous()
            if (rows, columns) == tuple(matrix.shape):
                return matrix
            # PyTorch pads no 8-bit floats.
            filled = torch.nn.functional.pad(matrix.view(torch.uint8), (0, columns - matrix.shape[1], 0, rows - matrix.shape[0]))
            return filled.view(matrix.dtype)

        def call():
            x, w = t["a"].T if turned[0] else t["a"], t["b"] if turned[1] else t["b"].T
            depth, columns = -(-k // 16) * 16, -(-n // 16) * 16
            if kind == "i8":
                found = torch._int_mm(padded(x, max(24, m), depth), padded(w, columns, depth).T)
            else:
                v = t["v"].abs()
                scales = (t["s"].abs().reshape(m, 1), torch.nn.functional.pad(v, (0, columns - n)).reshape(1, columns)) if each else (t["s"].abs()[0], v[0])
                found = torch._scaled_mm(padded(x, m, depth), padded(w, columns, depth).T, scale_a=scales[0], scale_b=scales[1],
                                         out_dtype=torch.bfloat16)
            return found if found.shape == (m, n) else found[:m, :n].contiguous()
        return call

    moved = sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())
    call = f"gemm(a, b -> y{options})" if kind == "i8" else f"scaled_gemm(a, b, s, v -> y{options})"
    names = ["turned " if one else "" for one in turned]
    return Case(f"{first} x {second} {names[0]}[{m}, {k}] x {names[1]}[{k}, {n}], {kind}", buffers, call, torch_call, moved)


def draw_grouped_gemm(draw):
    """Groups of rows, or of the depth, whose sizes fall by a power; beside the faster of PyTorch's grouped product and a loop."""
    dtype = draw.choice(("bf16", "bf16", "bf16", "f16"))
    groups = log_uniform(draw, 1, 256)
    k, n = ({0: x // 64 * 64 or 64, 1: x // 16 * 16 + 8, 2: x // 8 * 8 or 8, 3: x | 1}[draw.choice((0, 0, 0, 1, 2, 3))]
            for x in (log_uniform(draw, 64, 8192) for _ in range(2)))
    groups = max(1, min(groups, (1 << 28) // (k * n)))
    tokens = max(1, min(log_uniform(draw, 16, 1 << 17), (1 << 28) // (k + n)))
    skew = draw.choice((1, 1, draw.uniform(0.3, 1)))
    in_depth, turned = draw.random() < 0.3, draw.random() < 0.5
    return grouped_gemm(dtype, "depth" if in_depth else "turned" if turned else "rows", groups, tokens, skew, k, n)


def zeroed(torch, result, empty):
    """Two ways to set the results of empty groups to zero: for each run of them, and all by their numbers."""
    if not empty:
        return [lambda: None]
    runs = []
    for group in empty:
        if runs and runs[-1][1] == group:
            runs[-1][1] = group + 1
        else:
            runs.append([group, group + 1])
    numbers = torch.tensor(empty, device="cuda")

    def by_runs():
        for first, end in runs:
            result[first:end].zero_()
    return [by_runs, lambda: result.index_fill_(0, numbers, 0)]


def grouped_gemm(dtype, form, groups, tokens, skew, k, n):
    """One grouped product: groups of `tokens` rows, or terms of the depth.

    The result of a group without terms is zero. PyTorch does not write it, so that a fill of these groups follows.
    """
    in_depth, turned = form == "depth", form == "turned"
    ends = [int(tokens * ((group + 1) / groups) ** skew) for group in range(groups)]
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends) if begin < end]
    numbers = [group for group, (begin, end) in enumerate(zip([0, *ends], ends)) if begin < end]
    if in_depth:
        buffers = {"a": (dtype, [tokens, k]), "b": (dtype, [tokens, n]), "y": (dtype, [groups, k, n])}
        options = ", transpose_a: true"
    else:
        buffers = {"a": (dtype, [tokens, k]), "b": (dtype, [groups, n, k] if turned else [groups, k, n]), "y": (dtype, [tokens, n])}
        options = ", transpose_b: true" if turned else ""

    # PyTorch's own is for rows of multiples of 16 bytes in bf16; with others it waits for the host.
    has_own = dtype == "bf16" and k % 8 == 0 and n % 8 == 0

    def torch_call(t, torch):
        offs = torch.tensor(ends, device="cuda", dtype=torch.int32)
        if in_depth:
            def loop():
                for group, part in zip(numbers, parts):
                    torch.mm(t["a"][part].T, t["b"][part], out=t["y"][group])
            calls = (loop, lambda: torch._grouped_mm(t["a"].T, t["b"], offs=offs))[:1 + has_own]
            fills = zeroed(torch, t["y"], sorted(set(range(groups)) - set(numbers)))
            return fastest(torch, [lambda call=call, fill=fill: (call(), fill()) for call in calls for fill in fills])
        w = t["b"].transpose(1, 2) if turned else t["b"]

        def loop():
            for group, part in zip(numbers, parts):
                torch.mm(t["a"][part], w[group], out=t["y"][part])
        return fastest(torch, (loop, lambda: torch._grouped_mm(t["a"], w, offs=offs))[:1 + has_own])

    moved = sum(SIZES[kind] * count(dims) for kind, dims in buffers.values())
    return Case(f"{form} {dtype} {groups} groups of {tokens}, skew {skew:.2f}, {k} x {n}, {2e-9 * tokens * k * n:.1f} GFLOP",
                {**buffers, "r": ("i32", [groups]), "e": ("i32", [groups])}, f"grouped_gemm(a, b, e -> y{options})", torch_call, moved,
                f"map(floor({tokens} * pow((r + 1) / {groups}, {skew:.4f})) -> e)")
