"""What a case of an operation is made of, and what its run left behind."""
import dataclasses
import pathlib
import re
from collections.abc import Callable

import numpy
import torch

FLOATS = ("f32", "f64", "f16", "bf16")
U = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "i32": 0.0, "i64": 0.0}
HALF_STEP = {"f64": 0.0, "f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134, "i32": 0.0, "i64": 0.0}
TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclasses.dataclass
class Case:
    """One operation on one set of shapes."""

    operation: str
    dtype: str
    # Buffers by name: type, shape, memory and contents, as a workload declares them.
    buffers: dict[str, str]
    # The operation, as a step has it.
    text: str
    # The outputs by name. A tensor of the output's type is compared bit by bit, one in float64 within the bound.
    expect: Callable[["Tensors"], dict]
    # The relative error that rounding explains; nothing where results are exact.
    bound: float | None = None

    def renamed(self, number: int, text: str) -> str:
        """The text with this case's own buffer names."""
        return re.sub(r"\b(" + "|".join(self.buffers) + r")\b", rf"\g<1>_{number}", text)


class Tensors:
    """What one case left behind, by buffer name: in float64 as `t.x`, as it is as `t["x"]`."""

    def __init__(self, folder: pathlib.Path, number: int):
        self.folder, self.number, self.loaded = folder, number, {}

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.loaded:
            path = self.folder / f"{name}_{self.number}.npy"
            if path.exists():
                tensor = torch.from_numpy(numpy.load(path))
            else:
                # NumPy knows no bf16 and no floats of 8 bits: the file holds their bits.
                kinds = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
                kind = next(kind for kind in kinds if path.with_suffix(f".{kind}.npy").exists())
                bits = numpy.load(path.with_suffix(f".{kind}.npy"))
                bits = bits.view(numpy.int16) if kind == "bf16" else bits
                tensor = torch.from_numpy(bits).view(kinds[kind])
            self.loaded[name] = tensor.to(DEVICE)
        return self.loaded[name]

    def __getattr__(self, name: str) -> torch.Tensor:
        return self[name].double()


def accumulated(dtype: str, roundings: float) -> float:
    """The bound for that many roundings in the type that arithmetic is done in, and one of the output."""
    if dtype in ("f64", "i32", "i64"):
        return 2 * roundings * U["f64"] + U[dtype]
    return roundings * U["f32"] + (U[dtype] if dtype != "f32" else 0.0)


def shape(*dims: int) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def store(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Float64 values as the operations store them: 16-bit types by way of f32, integers cut off and saturated."""
    if dtype in ("f16", "bf16"):
        return values.float().to(TORCH[dtype])
    if TORCH[dtype].is_floating_point:
        return values.to(TORCH[dtype])
    limits = torch.iinfo(TORCH[dtype])
    return values.trunc().clamp(limits.min, limits.max).to(TORCH[dtype])
