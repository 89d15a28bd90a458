"""Cases of attention and its gradients, with what PyTorch computes for them in float64."""
import math

import torch

from operation_case import Case, DEVICE, accumulated, shape


def attention(dtype: str, quick: bool):
    def scores(t, causal, window, gqa, biased, softcap):
        k = t.k.repeat_interleave(gqa, 1)
        found = t.q @ k.transpose(-1, -2) * t.q.shape[-1]**-0.5
        ratio = (found / softcap).tanh() if softcap else torch.zeros_like(found)
        found = (softcap * ratio if softcap else found) + (t.b if biased else 0)
        own = torch.arange(found.shape[-2], device=DEVICE)[:, None] + found.shape[-1] - found.shape[-2]
        key = torch.arange(found.shape[-1], device=DEVICE)
        unseen = (key > own) | (key <= own - window if window else key < 0) if causal else key < 0
        return found.masked_fill(unseen, -math.inf), k, t.v.repeat_interleave(gqa, 1), 1 - ratio**2

    def forward(t, *options):
        found, _, v, _ = scores(t, *options)
        return {"o": found.softmax(-1) @ v, "l": found.logsumexp(-1)}

    def backward(t, causal, window, gqa, biased, softcap):
        found, k, v, slope = scores(t, causal, window, gqa, biased, softcap)
        p, scale = (found - t.l[..., None]).exp(), t.q.shape[-1]**-0.5
        ds = p * (t.z @ v.transpose(-1, -2) - (t.o * t.z).sum(-1, keepdim=True) + t.e[..., None])
        slopes, ds = {"ds": ds} if biased else {}, ds * slope * scale
        dk, dv = (x.unflatten(1, (-1, gqa)).sum(2) for x in (ds.transpose(-1, -2) @ t.q, p.transpose(-1, -2) @ t.z))
        return {"dq": ds @ k, "dk": dk, "dv": dv, **slopes}

    # A weight is rounded to 16 bits, and means of values may be small beside them.
    bound = accumulated(dtype, 256) + (16 * 2.0**-9 if dtype == "bf16" else 16 * 2.0**-12 if dtype == "f16" else 0.0)
    sizes = [(1, 1, 1, 1, 1, 8), (2, 3, 2, 33, 65, 64), (1, 2, 4, 1, 700, 128), (2, 1, 1, 130, 130, 80), (1, 2, 1, 17, 40, 7)]
    for batch, shared, gqa, queries, keys, d in sizes + ([] if quick else [(4, 4, 4, 1024, 1024, 128), (1, 8, 4, 1, 16384, 128)]):
        for causal, window, biased, softcap in ((False, 0, False, 0), (True, 0, False, 0), (True, 9, False, 0.3), (False, 0, True, 0), (True, 9, True, 2),
                                                (False, 0, False, 0.5)):
            q, k, sums = (batch, shared * gqa, queries, d), (batch, shared, keys, d), "f64" if dtype == "f64" else "f32"
            buffers = {"q": dtype + shape(*q), "k": dtype + shape(*k), "v": dtype + shape(*k), "o": dtype + shape(*q),
                       "l": sums + shape(*q[:3])}
            buffers |= {"b": dtype + shape(shared * gqa, queries, keys)} if biased else {}
            options, call = (causal, window, gqa, biased, softcap), f", causal: {str(causal).lower()}, window: {window}, softcap: {softcap}"
            bias = ", b" if biased else ""
            yield Case("attention", dtype, buffers, f"attention(q, k, v{bias}{call} -> o, l)", lambda t, o=options: forward(t, *o), bound)
            more = {"z": dtype + shape(*q), "e": sums + shape(*q[:3]), "dq": dtype + shape(*q), "dk": dtype + shape(*k), "dv": dtype + shape(*k)}
            more |= {"ds": sums + shape(*q[:3], keys)} if biased else {}
            name = "biased_attention_backward" if biased else "attention_backward"
            call = (f"biased_attention_backward(q, k, v, o, l, z, b, e{call} -> dq, dk, dv, ds)" if biased else
                    f"attention_backward(q, k, v, o, l, z, e{call} -> dq, dk, dv)")
            yield Case(name, dtype, {**buffers, **more}, call,
                       lambda t, o=options: backward(t, *o), bound)
    yield from pooled(dtype, quick, bound)
    yield from ragged(dtype, quick, bound)


def seen_by(queries, keys, causal, window):
    """Whether each query sees each key."""
    own = torch.arange(queries, device=DEVICE)[:, None] + keys - queries
    key = torch.arange(keys, device=DEVICE)
    return ((key <= own) & (key > own - window if window else key >= 0)) if causal else (key >= 0).expand(queries, keys)


def of_sequence(q, k, v, causal, window):
    """Results of [heads, queries, d] over keys and values with as many heads. A query that sees no key has zeros."""
    found = (q @ k.transpose(-1, -2) * q.shape[-1]**-0.5).masked_fill(~seen_by(q.shape[1], k.shape[1], causal, window), -math.inf)
    lse = found.logsumexp(-1)
    return (found - torch.where(lse.isinf(), 0.0, lse)[..., None]).exp() @ v, lse


def pooled(dtype, quick, bound):
    """Keys and values by pages, some of which are not in the pool, with lengths of any number."""
    def expect(t, causal, gqa):
        o, lse = [], []
        for pages, length, q in zip(t["p"].tolist(), t["n"].tolist(), t.q):
            k, v = (torch.cat([pool[page] if 0 <= page < len(pool) else torch.zeros_like(pool[0]) for page in pages], 1)
                    .repeat_interleave(gqa, 0)[:, :max(0, length)] for pool in (t.k, t.v))
            found = of_sequence(q, k, v, causal, 0)
            o.append(found[0])
            lse.append(found[1])
        return {"o": torch.stack(o), "l": torch.stack(lse)}

    sums = "f64" if dtype == "f64" else "f32"
    sizes = [(2, 2, 2, 1, 5, 16, 4, 64), (3, 1, 4, 3, 9, 8, 7, 40)] + ([] if quick else [(16, 8, 4, 1, 200, 64, 40, 128)])
    for sequences, shared, gqa, queries, blocks, page, columns, d in sizes:
        for causal in (False, True):
            heads = shared * gqa
            pool = dtype + shape(blocks, shared, page, d)
            buffers = {"q": dtype + shape(sequences, heads, queries, d), "k": pool, "v": pool, "p": "i32" + shape(sequences, columns),
                       "n": "i32" + shape(sequences), "o": dtype + shape(sequences, heads, queries, d), "l": sums + shape(sequences, heads, queries)}
            yield Case("paged_attention", dtype, buffers, f"paged_attention(q, k, v, p, n, causal: {str(causal).lower()} -> o, l)",
                       lambda t, o=(causal, gqa): expect(t, *o), bound)


def ragged(dtype, quick, bound):
    """Sequences whose ends are any numbers: some descend, and some are beyond the tensors."""
    def parts(t):
        first, first_key = 0, 0
        for end, key_end in zip(t["e"].tolist(), t["f"].tolist()):
            end, key_end = max(first, min(end, t.q.shape[1])), max(first_key, min(key_end, t.k.shape[1]))
            yield slice(first, end), slice(first_key, key_end)
            first, first_key = end, key_end

    def forward(t, causal, gqa):
        k, v = (x.repeat_interleave(gqa, 0) for x in (t.k, t.v))
        o, lse = torch.zeros_like(t.q), torch.full_like(t.q[..., 0], -math.inf)
        for rows, keys in parts(t):
            o[:, rows], lse[:, rows] = of_sequence(t.q[:, rows], k[:, keys], v[:, keys], causal, 0)
        return {"o": o, "l": lse}

    def backward(t, causal, gqa):
        k, v = (x.repeat_interleave(gqa, 0) for x in (t.k, t.v))
        dq, dk, dv = torch.zeros_like(t.q), torch.zeros_like(k), torch.zeros_like(v)
        scale, delta = t.q.shape[-1]**-0.5, (t.o * t.z).sum(-1, keepdim=True)
        for rows, keys in parts(t):
            q, z = t.q[:, rows], t.z[:, rows]
            p = (q @ k[:, keys].transpose(-1, -2) * scale - t.l[:, rows, None]).exp()
            p = p.masked_fill(~seen_by(q.shape[1], p.shape[2], causal, 0), 0.0)
            ds = p * (z @ v[:, keys].transpose(-1, -2) - delta[:, rows]) * scale
            dq[:, rows], dk[:, keys], dv[:, keys] = ds @ k[:, keys], ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ z
        return {"dq": dq, "dk": dk.unflatten(0, (-1, gqa)).sum(1), "dv": dv.unflatten(0, (-1, gqa)).sum(1)}

    sums = "f64" if dtype == "f64" else "f32"
    sizes = [(3, 2, 2, 70, 80, 64), (1, 1, 4, 33, 20, 40)] + ([] if quick else [(40, 4, 1, 2000, 2000, 128)])
    for sequences, shared, gqa, queries, keys, d in sizes:
        for causal in (False, True):
            heads, option = shared * gqa, f"causal: {str(causal).lower()}"
            q, k = dtype + shape(heads, queries, d), dtype + shape(shared, keys, d)
            buffers = {"q": q, "k": k, "v": k, "o": q, "l": sums + shape(heads, queries), "e": "i32" + shape(sequences), "f": "i32" + shape(sequences)}
            yield Case("ragged_attention", dtype, buffers, f"ragged_attention(q, k, v, e, f, {option} -> o, l)",
                       lambda t, o=(causal, gqa): forward(t, *o), bound)
            yield Case("ragged_attention_backward", dtype, {**buffers, "z": q, "dq": q, "dk": k, "dv": k},
                       f"ragged_attention_backward(q, k, v, o, l, z, e, f, {option} -> dq, dk, dv)",
                       lambda t, o=(causal, gqa): backward(t, *o), bound)
