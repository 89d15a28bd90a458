#!/usr/bin/env python3
"""Attention and its gradients beside the best of PyTorch's backends, on shapes drawn by seed.

    python3 benches/h200/attention.py --aorta target/release/aorta --seed 1 [--cases 16] [--verify 24]

Aorta and PyTorch take turns case by case, so that the power limit slows down both alike. PyTorch runs the same calls in a CUDA graph by
each backend of `scaled_dot_product_attention` that takes them: cuDNN, FlashAttention and memory-efficient attention. The table shows the
fastest of them, and what aorta chose during preparation. For `paged`, which decodes from a pool, PyTorch reads as many keys in
order, since none of these backends has pages. `backward` has the same bits in every run, also PyTorch's (`use_deterministic_algorithms`);
`unordered` is the same with `deterministic: false`, beside PyTorch's usual choice. `wide` and its gradients, `wide_backward`, have heads or
types that fused kernels do not multiply; PyTorch's `math` backend, two products and softmax, is among its choices there. `chunk` has fewer
queries than keys with a causal mask, as chunked prefill; `sliding` has a window; `ragged` and `ragged_backward` have packed sequences.
`scaled_dot_product_attention` has none of these, so PyTorch calls FlashAttention directly. `--verify N` compares N further cases with the CPU's results in f64:
once by what is fastest, and once by the library wherever it has an engine.
"""
import argparse
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

from drawn import size
from drawn_case import Case
from shapes import CALLS, quantile, tensors, workload

FORMS = ("forward", "backward", "unordered", "decode", "paged", "wide", "wide_backward", "tree", "biased", "slopes", "chunk", "sliding", "ragged",
         "ragged_backward")

# Forms that compute gradients.
GRADIENTS = ("backward", "unordered", "wide_backward", "biased", "slopes", "ragged_backward")

# Forms whose masks or sequences only FlashAttention takes.
FLASH = ("chunk", "sliding", "ragged", "ragged_backward")

# Forms with a bias: few queries, as trees of speculative decoding have them; gradients; and gradients with those of the bias.
BIASED = ("tree", "biased", "slopes")

# Forms whose heads are wider than those of fused kernels, or whose types these do not multiply.
WIDE = ("wide", "wide_backward")


def drawn(draw, form, most):
    """A case of a form. `most` bounds the scores of all heads."""
    dtype = draw.choice(("bf16", "bf16", "f16"))
    d = draw.choice((64, 128, 128, 80, 96, 256) if form not in GRADIENTS else (64, 128, 128, 96))
    if form in WIDE:
        dtype, most = draw.choice(("f32", "f32", "bf16", "f16")), most >> 3
        d = draw.choice((320, 512, 1024) if dtype != "f32" else (64, 128, 320, 512, 1024))
    shared = draw.choice((1, 2, 4, 8, 8))
    group = draw.choice((1, 1, 4, 8, 3, 5, 7) if form not in GRADIENTS else (1, 1, 4, 3))
    if form == "tree":
        batch, queries, keys = size(draw, 1, 32), draw.randint(2, 64), size(draw, 100, 32768)
    elif form == "decode":
        batch, queries, keys = size(draw, 1, 128), 1, size(draw, 256, 32768)
    elif form == "chunk":
        batch, queries = size(draw, 1, 8), size(draw, 16, 2048)
        keys = queries + size(draw, 256, 32768)
    else:
        queries, batch = size(draw, 100, 8192), size(draw, 1, 8)
        keys = queries if draw.random() < 0.7 else queries + size(draw, 1, 4096)
    batch = max(1, min(batch, most // (shared * group * queries * keys) if form not in ("decode", "tree") else (1 << 28) // (shared * keys * d)))
    causal = form in ("chunk", "sliding") or (form != "decode" and queries == keys and draw.random() < 0.7)
    return dtype, batch, queries, keys, shared, group, d, causal, draw.random() < 0.5


def draw_bias(draw, form, dtype, batch, queries, keys, shared, group, *_):
    """The dimensions and the type of a bias."""
    heads = shared * group
    masks = ([1, 1, queries, keys], [1, 1, queries, keys], [batch, 1, queries, keys], [batch, heads, queries, keys])
    dims = draw.choice(masks if form == "tree" else masks[2:] + ([1, heads, queries, keys],) * 2)
    return dims, draw.choice((dtype, "f32"))


def case(form, dtype, batch, queries, keys, shared, group, d, causal, positions_first, window=0, bias=None, of_bias=None):
    heads = shared * group
    dims = (lambda n, h: [batch, n, h, d]) if positions_first else (lambda n, h: [batch, h, n, d])
    options = (", layout: positions_first" if positions_first else "") + (", causal: true" if causal else "") + (f", window: {window}" if window else "")
    buffers = {"q": (dtype, dims(queries, heads)), "k": (dtype, dims(keys, shared)), "v": (dtype, dims(keys, shared)),
               "o": (dtype, dims(queries, heads)), "l": ("f32", [batch, heads, queries])}
    setup, given = "", ""
    if bias:
        # Some keys are masked for some queries, and all of them for the last query.
        buffers["m"], given = (of_bias or dtype, bias), ", m"
        last = f"m[{'.., ' * (len(bias) - 2)}{bias[-2] - 1}..{bias[-2]}, 0..{bias[-1]}]"
        setup = f"map(log({last} * 0) -> {last})  map(if m > 0.6 {{ log(m * 0) }} else {{ m * 3 }} -> m)"
    forward, call = f"attention(q, k, v{given}{options} -> o, l)", None
    if form in GRADIENTS:
        options += ", deterministic: false" if form == "unordered" else ""
        buffers |= {"z": buffers["o"], "dq": buffers["q"], "dk": buffers["k"], "dv": buffers["v"]}
        call = f"attention_backward(q, k, v, o, l, z{options} -> dq, dk, dv)"
        if bias:
            buffers |= {"s": ("f32", [batch, heads, queries, keys])} if form == "slopes" else {}
            call = f"biased_attention_backward(q, k, v, o, l, z{given}{options} -> dq, dk, dv{', s' if form == 'slopes' else ''})"
            forward = f"{setup}  {forward}"
    seen = queries * keys - queries * (queries - 1) // 2 if causal else queries * keys
    if window:
        seen = sum(min(window, keys - queries + query + 1) for query in range(queries))
    flops = (10 if form in GRADIENTS else 4) * batch * heads * seen * d
    what = (f"{form} {dtype} batch {batch}, heads {heads}/{shared}, {queries} x {keys}, d {d}{', causal' if causal else ''}"
            f"{f', window {window}' if window else ''}{', positions first' if positions_first else ''}{f', bias {of_bias or dtype}{bias}' if bias else ''}, {flops / 1e9:.1f} GFLOP")

    def body(t, torch):
        functional = torch.nn.functional
        if form in FLASH:
            return flash(torch, t, not positions_first, causal, window)
        q, k, v = (t[name].transpose(1, 2) if positions_first else t[name] for name in "qkv")
        mask = None
        if bias:
            # PyTorch takes a bias of the queries' type, and no causal mask beside it.
            mask = t["m"].to(q.dtype)
            if causal:
                mask = mask.masked_fill(torch.ones(queries, keys, dtype=torch.bool, device=mask.device).triu(1), -math.inf)
            mask = mask.expand(batch, heads, queries, keys)
        options = {"attn_mask": mask, "is_causal": causal and not bias, "enable_gqa": group > 1}
        if form not in GRADIENTS:
            return lambda: functional.scaled_dot_product_attention(q, k, v, **options)
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        if form == "slopes":
            mask = options["attn_mask"] = mask.detach().requires_grad_()
        o = functional.scaled_dot_product_attention(q, k, v, **options)
        z = t["z"].transpose(1, 2) if positions_first else t["z"]
        return lambda: torch.autograd.grad(o, (q, k, v, *((mask,) if form == "slopes" else ())), z, retain_graph=True)
    moved = batch * (2 * heads * queries + 2 * shared * keys) * d * 2
    if bias:
        moved += math.prod(bias) * (4 if of_bias == "f32" else 2) + (4 * batch * heads * queries * keys if form == "slopes" else 0)
    made = Case(what, buffers, call or forward, body, moved, forward if call else setup)
    return made, flops


def flash(torch, t, heads_first, causal, window=0, ends=None):
    """A call of FlashAttention, whose causal mask ends at the last query and the last key. `ends` are those of packed sequences."""
    q, k, v = (t[name].transpose(1, 2) if heads_first else t[name] for name in "qkv")
    lengths, most = None, (q.shape[-3], k.shape[-3])
    if ends:
        lengths = torch.tensor([0, *ends], dtype=torch.int32, device=q.device)
        most = (max(end - start for start, end in zip([0, *ends], ends)),) * 2
    sides = {"window_size_left": window - 1, "window_size_right": 0} if window else {}

    def call():
        return torch.ops.aten._flash_attention_forward(q, k, v, lengths, lengths, *most, 0.0, causal, False, **sides)[0]
    if "z" not in t:
        return call
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    o = call()
    return lambda: torch.autograd.grad(o, (q, k, v), t["z"], retain_graph=True)


def ragged(draw, form):
    """A case of packed sequences, each with half to one and a half times as many positions as their mean."""
    dtype, d = draw.choice(("bf16", "bf16", "f16")), draw.choice((64, 128, 128, 80, 96))
    shared, group = draw.choice((1, 2, 4, 8, 8)), draw.choice((1, 1, 4, 8, 3, 5))
    sequences, mean, causal = size(draw, 2, 128), size(draw, 32, 4096), draw.random() < 0.7
    sequences = max(1, min(sequences, (1 << 30) // (shared * group * mean * mean), (1 << 24) // (shared * group * mean)))
    heads, step, apart = shared * group, draw.randint(1, 7919), mean // 2 + 1
    ends = [(number + 1) * mean - number * step % apart for number in range(sequences)]
    lengths = [end - start for start, end in zip([0, *ends], ends)]
    q, k, index = (dtype, [ends[-1], heads, d]), (dtype, [ends[-1], shared, d]), ("i32", [sequences])
    buffers = {"q": q, "k": k, "v": k, "o": q, "l": ("f32", [heads, ends[-1]]), "r": index, "e": index}
    setup = f"map((r + 1) * {mean} - r * {step} % {apart} -> e)  "
    options = f", layout: positions_first{', causal: true' if causal else ''}"
    call = forward = f"ragged_attention(q, k, v, e, e{options} -> o, l)"
    if form in GRADIENTS:
        buffers |= {"z": q, "dq": q, "dk": k, "dv": k}
        call = f"ragged_attention_backward(q, k, v, o, l, z, e, e{options} -> dq, dk, dv)"
    flops = (10 if form in GRADIENTS else 4) * heads * d * sum(n * (n + 1) // 2 if causal else n * n for n in lengths)
    what = f"{form} {dtype} {sequences} sequences of {min(lengths)} to {max(lengths)}, heads {heads}/{shared}, d {d}{', causal' if causal else ''}"

    def body(t, torch):
        return flash(torch, t, False, causal, 0, ends)
    return Case(what, buffers, call, body, 4 * ends[-1] * (heads + shared) * d, setup + (forward if call != forward else "")), flops


def paged(draw):
    """A case of decoding from a pool, whose pages are scattered."""
    dtype, d = draw.choice(("bf16", "bf16", "f16")), draw.choice((64, 128, 128, 96))
    shared, group, page = draw.choice((1, 2, 4, 8, 8)), draw.choice((1, 4, 8)), draw.choice((16, 32, 64, 128))
    batch, columns = size(draw, 1, 128), max(1, size(draw, 256, 32768) // page)
    batch = max(1, min(batch, (1 << 28) // (shared * columns * page * d)))
    heads, keys, blocks = shared * group, columns * page, batch * columns
    # A factor that has no divisor in common with the number of blocks makes the pages a permutation of them.
    step = next(step for step in range(7919, 1 << 14) if math.gcd(step, blocks) == 1)
    pool = (dtype, [blocks, page, shared, d])
    buffers = {"q": (dtype, [batch, 1, heads, d]), "k": pool, "v": pool, "o": (dtype, [batch, 1, heads, d]),
               "r": ("i32", [batch, columns]), "c": ("i32", [batch])}

    def body(t, torch):
        q, k, v = t["q"].transpose(1, 2), *(t[name].view(batch, keys, shared, d).transpose(1, 2) for name in "kv")
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1)
    flops, moved = 4 * batch * heads * keys * d, batch * (2 * heads + 2 * shared * keys) * d * 2
    what = f"paged {dtype} batch {batch}, heads {heads}/{shared}, {columns} pages of {page}, d {d}"
    setup = f"map(r * {step} % {blocks} -> r)  map(c * 0 + {keys} -> c)"
    return Case(what, buffers, "paged_attention(q, k, v, r, c, layout: positions_first -> o)", body, moved, setup), flops


def small_paged(draw):
    """A case of attention to pages, of which some lie outside of the pool, with as many keys as each sequence has."""
    dtype, d = draw.choice(("bf16", "f16")), draw.choice((64, 128, 8, 24, 80, 96, 256))
    shared, group, page = draw.randint(1, 3), draw.choice((1, 2, 4, 8)), draw.choice((1, 7, 16, 32, 64))
    batch, queries, columns = draw.randint(1, 5), draw.choice((1, 1, 1, 2, 5, 20)), size(draw, 1, max(1, draw.choice((300, 3000)) // page))
    blocks, keys = draw.randint(1, batch * columns + 1), columns * page
    pool = (dtype, [blocks, page, shared, d])
    buffers = {"q": (dtype, [batch, queries, shared * group, d]), "k": pool, "v": pool, "o": (dtype, [batch, queries, shared * group, d]),
               "l": ("f32", [batch, shared * group, queries]), "r": ("i32", [batch, columns]), "c": ("i32", [batch])}
    outside, options = draw.randint(0, 1), draw.choice(("", ", causal: true", f", causal: true, window: {draw.randint(1, keys)}"))
    setup = f"map(r * 7919 % {blocks + outside} -> r)  map((c * {draw.randint(1, 997)} + {keys}) % {keys + 2} -> c)"
    what = f"paged {dtype} batch {batch}, heads {shared * group}/{shared}, {queries} queries, {columns} pages of {page}, d {d}{options}"
    return Case(what, buffers, f"paged_attention(q, k, v, r, c, layout: positions_first{options} -> o, l)", None, 0, setup)


def backends(made, torch, plain):
    """Microseconds of a call by each backend that takes it; with `plain`, also by products and softmax."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    found = {}
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", *(("MATH",) if plain else ())):
        try:
            with sdpa_kernel([getattr(SDPBackend, name)]):
                found[name.split("_")[0].lower()] = graph_time(made, torch)
        except RuntimeError:
            pass
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    return found


def pytorch(made, form):
    """Microseconds of a call by each of PyTorch's backends, in the mode of a form."""
    import torch
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(form == "backward")
    if form in FLASH:
        return {"flash": graph_time(made, torch)}
    return backends(made, torch, form in (*WIDE, *BIASED))


def graph_time(made, torch):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        body = made.torch(tensors(Case(made.what, made.buffers, made.call, made.torch, made.bytes), torch), torch)
        body()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        body()
        end.record()
        torch.cuda.synchronize()
        calls = CALLS if begin.elapsed_time(end) < 20 else 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                body()
        times = []
        for turn in range(6):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn:
                times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def execute(args, path, cases, calls, *options):
    """Runs a file; returns the exit code, the record, and all output."""
    record = path.with_suffix(".json")
    path.write_text(workload(cases, calls))
    rounds = 1 if "--verify" in options else 5
    command = [args.aorta, "exec", str(path), "--backend", args.backend, "--launch", "graph", "--warmup", str(len(cases) + 1),
               "--iterations", str(rounds * (len(cases) + 1)), "--config", "observed_iterations=0", "--timeout", "170s",
               "--json", str(record), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(f"{' '.join(command)}\n{done.stderr[-3000:]}", flush=True)
        return done.returncode, {}, done.stdout + done.stderr
    return done.returncode, json.loads(record.read_text()), done.stdout + done.stderr


def chosen(record):
    """The notes on what computes attention."""
    return sorted(set(re.findall(r'"((?:attention|gradients of attention) [^"]*)"', json.dumps(record, ensure_ascii=False))))


def verify(args, folder):
    """Compares small cases of all forms with the CPU's results."""
    draw, cases = random.Random(f"{args.seed} verify"), []
    for number in range(args.verify):
        form = ("forward", "backward", "unordered", "paged", "tree", "biased", "slopes", "biased")[number % 8]
        if form == "paged":
            cases.append(small_paged(draw))
            continue
        queries = draw.choice((draw.randint(1, 40), draw.randint(41, 300), 64, 128, 256) if form != "tree" else range(2, 65))
        keys = queries + draw.choice((0, 0, draw.randint(1, 200)))
        causal = draw.random() < 0.6
        window = draw.choice((0, draw.randint(1, keys))) if causal else 0
        dtype, batch, shared, group = draw.choice(("bf16", "f16", "f32")), draw.randint(1, 3), draw.randint(1, 3), draw.choice((1, 1, 2, 4))
        d, positions_first, bias = draw.choice((64, 128, 8, 24, 40, 72, 80, 96, 112, 264, 320)), draw.random() < 0.5, None
        of_bias = dtype
        if form in BIASED:
            keys = draw.choice((keys, size(draw, 100, 3000))) if form == "tree" else keys
            causal, window = causal and queries <= keys, min(window, keys)
            bias, of_bias = draw_bias(draw, form, dtype, batch, queries, keys, shared, group)
        if form == "forward" and number % 16:
            # The library takes rows of whole packs.
            keys = queries + (8 - queries % 8 if draw.random() < 0.8 else 0)
            window = min(window, keys)
            bias = draw.choice(([queries, keys], [shared * group, queries, keys], [batch, shared * group, queries, keys]))
        cases.append(case(form, dtype, batch, queries, keys, shared, group, d, causal, positions_first, window, bias, of_bias)[0])
    for name, options in (("fastest", ()), ("library", ("--config", "gemm_candidates=1"))):
        began = time.monotonic()
        code, record, output = execute(args, folder / f"verify_{name}.aorta", cases, 1, "--verify", *options)
        notes = chosen(record)
        by = sum("engine" in note and "kernels of aorta, since" not in note for note in notes)
        lines = [line for line in output.splitlines() if "verified" in line or "wrong" in line or "differs" in line]
        print(f"verify {name}: code {code}, {len(cases)} cases, {by} of {len(notes)} by the library, {time.monotonic() - began:.0f} s; {' '.join(lines)[:400]}", flush=True)
        for note in notes:
            if "since" in note or "bias" in note:
                print(f"  {note}", flush=True)
        if code:
            print(output[-4000:], flush=True)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=8, help="cases of each form")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--verify", type=int, default=0)
    parser.add_argument("--no-pytorch", action="store_true")
    args = parser.parse_args()
    # A backend that does not take a case says so several times.
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if args.verify:
            verify(args, folder)
        if not args.cases:
            return
        summary = []
        for form in args.forms.split(","):
            # Both forms of gradients have the same cases.
            name = "ragged" if form.startswith("ragged") else "backward" if form in GRADIENTS else form
            draw, began = random.Random(f"{args.seed} {name}"), time.monotonic()
            cases = []
            for _ in range(args.cases):
                if form in BIASED:
                    sizes = drawn(draw, form, 1 << 28)
                    cases.append(case(form, *sizes, 0, *draw_bias(draw, form, *sizes)))
                elif form.startswith("ragged"):
                    cases.append(ragged(draw, form))
                else:
                    sizes = drawn(draw, form, 1 << 31)
                    window = size(draw, 16, sizes[3]) if form == "sliding" else 0
                    cases.append(paged(draw) if form == "paged" else case(form, *sizes, window))
            speeds = []
            for number, (made, flops) in enumerate(cases):
                _, record, _ = execute(args, folder / f"{form}_{number}.aorta", [made], CALLS)
                for note in chosen(record):
                    print(f"  {note}", flush=True)
                slots = record.get("variants", [{}])[0].get("time", {}).get("slots", [])[1:]
                own = next((slot["p50_ns"] / 1e3 / CALLS for slot in slots if slot.get("p50_ns") is not None), math.nan)
                found = {} if args.no_pytorch else pytorch(made, form)
                best = min(found.values()) if found else math.nan
                speeds.append(best / own)
                times = ", ".join(f"{name} {value:.1f}" for name, value in sorted(found.items()))
                print(f"| {made.what} | {times} | {own:.1f} | {flops / own / 1e6:.0f} TFLOP/s, {made.bytes / own / 1e6:.2f} TB/s | {best / own:.2f} |", flush=True)
            print(f"{form}: measured in {time.monotonic() - began:.0f} s", flush=True)
            summary.append(f"| {form} | {len(speeds)} | {statistics.median(speeds):.2f} | {quantile(speeds, 0.1):.2f} | {min(speeds):.2f} |")
        print("\n".join(["| form | cases | median speed | worst tenth | worst |", "| --- | ---: | ---: | ---: | ---: |", *summary]))


if __name__ == "__main__":
    sys.exit(main())
