"""What a drawn case of an operation is made of: element types, shapes and sizes."""
import math

SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
FLOATS = ("f32", "bf16", "f16", "f64", "e4m3", "e5m2")


class Case:
    """One operation on one set of shapes."""

    def __init__(self, what, buffers, call, torch, bytes_moved, setup=""):
        # A description; buffers by name, as (type, dimensions); the operation; PyTorch's call, made from tensors by name;
        # bytes that have to be moved; operations that prepare indices, once.
        self.what, self.buffers, self.call, self.torch = what, buffers, call, torch
        self.bytes, self.setup = bytes_moved, setup
        # The operation, with the label `f`, that `call` is the gradient of; buffers that must agree with PyTorch's gradients, and those of
        # them that are zero.
        self.forward, self.gradients, self.zeros = "", [], []

    def total(self):
        return sum(SIZES[dtype] * math.prod(dims) for dtype, dims in self.buffers.values())


def log_uniform(draw, low, high):
    return int(round(math.exp(draw.uniform(math.log(low), math.log(high)))))


def size(draw, low, high):
    """A dimension as people have them: round, odd, prime or any."""
    n = max(1, log_uniform(draw, low, high))
    kind = draw.randrange(4)
    if kind == 0:
        return 1 << max(0, round(math.log2(n)))
    if kind == 1:
        return max(1, n // 8 * 8)
    if kind == 2:
        return n | 1
    return n


def shape(draw, rank, elements):
    """A shape of about that many elements."""
    dims, left = [], elements
    for axis in range(rank, 1, -1):
        n = size(draw, 1, max(1, left) ** (draw.uniform(0.3, 1.6) / axis)) if left > 1 else 1
        dims.append(max(1, n))
        left = max(1, left // max(1, n))
    dims.append(max(1, left if draw.random() < 0.5 else size(draw, max(1, left * 0.7), max(1, left))))
    draw.shuffle(dims)
    return dims


def elements(draw, dtype, tensors=2):
    return max(1, log_uniform(draw, 1 << 12, 1 << 28) // SIZES[dtype] // tensors)


def count(dims):
    return math.prod(dims)


def fastest(torch, calls):
    """The call that takes least, each in a CUDA graph; those that PyTorch refuses are left out."""
    times = []
    for call in calls:
        try:
            call()
        except RuntimeError:
            continue
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        own = []
        for _ in range(4):
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            own.append(begin.elapsed_time(end))
        times.append((min(own), call))
    return min(times, key=lambda one: one[0])[1]
