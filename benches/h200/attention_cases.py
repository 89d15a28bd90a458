"""Cases of attention and its gradients, with what PyTorch computes for them in float64."""
import math

import torch

from operation_case import Case, DEVICE, accumulated, shape


def attention(dtype: str, quick: bool):
    def scores(t, causal, window, gqa):
        k = t.k.repeat_interleave(gqa, 1)
        found = t.q @ k.transpose(-1, -2) * t.q.shape[-1]**-0.5
        own = torch.arange(found.shape[-2], device=DEVICE)[:, None] + found.shape[-1] - found.shape[-2]
        key = torch.arange(found.shape[-1], device=DEVICE)
        unseen = (key > own) | (key <= own - window if window else key < 0) if causal else key < 0
        return found.masked_fill(unseen, -math.inf), k, t.v.repeat_interleave(gqa, 1)

    def forward(t, *options):
        found, _, v = scores(t, *options)
        return {"o": found.softmax(-1) @ v, "l": found.logsumexp(-1)}

    def backward(t, causal, window, gqa):
        found, k, v = scores(t, causal, window, gqa)
        p, scale = (found - t.l[..., None]).exp(), t.q.shape[-1]**-0.5
        ds = p * (t.z @ v.transpose(-1, -2) - (t.o * t.z).sum(-1, keepdim=True) + t.e[..., None]) * scale
        dk, dv = (x.unflatten(1, (-1, gqa)).sum(2) for x in (ds.transpose(-1, -2) @ t.q, p.transpose(-1, -2) @ t.z))
        return {"dq": ds @ k, "dk": dk, "dv": dv}

    # A weight is rounded to 16 bits, and means of values may be small beside them.
    bound = accumulated(dtype, 256) + (16 * 2.0**-9 if dtype == "bf16" else 16 * 2.0**-12 if dtype == "f16" else 0.0)
    sizes = [(1, 1, 1, 1, 1, 8), (2, 3, 2, 33, 65, 64), (1, 2, 4, 1, 700, 128), (2, 1, 1, 130, 130, 80), (1, 2, 1, 17, 40, 7)]
    for batch, shared, gqa, queries, keys, d in sizes + ([] if quick else [(4, 4, 4, 1024, 1024, 128), (1, 8, 4, 1, 16384, 128)]):
        for causal, window in ((False, 0), (True, 0), (True, 9)):
            q, k, sums = (batch, shared * gqa, queries, d), (batch, shared, keys, d), "f64" if dtype == "f64" else "f32"
            buffers = {"q": dtype + shape(*q), "k": dtype + shape(*k), "v": dtype + shape(*k), "o": dtype + shape(*q),
                       "l": sums + shape(*q[:3])}
            options, call = (causal, window, gqa), f", causal: {str(causal).lower()}, window: {window}"
            yield Case("attention", dtype, buffers, f"attention(q, k, v{call} -> o, l)", lambda t, o=options: forward(t, *o), bound)
            more = {"z": dtype + shape(*q), "e": sums + shape(*q[:3]), "dq": dtype + shape(*q), "dk": dtype + shape(*k), "dv": dtype + shape(*k)}
            yield Case("attention_backward", dtype, {**buffers, **more}, f"attention_backward(q, k, v, o, l, z, e{call} -> dq, dk, dv)",
                       lambda t, o=options: backward(t, *o), bound)
