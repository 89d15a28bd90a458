#!/usr/bin/env python3
"""Every operation against PyTorch in float64: random inputs, several shapes, each element type.

    python3 benches/h200/operations.py --aorta target/release/aorta [--markdown FILE]

Cases of a kind and element type make one workload file; `aorta exec FILE --outputs FOLDER` leaves inputs and outputs
as NumPy files. PyTorch computes the outputs once more from the same inputs, in float64, on the GPU where it sees one.
What moves data or picks it is compared bit by bit. For the rest the relative error is the norm of the difference over
the norm of the reference, and the largest difference over the largest element has to stay below the same bound, so
that a single wrong element shows in a large tensor too.

Bounds, with u the unit roundoff of a type (2^-53 for f64, 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16):
- A 16-bit output costs u of its type, its one rounding. What comes before is done in f32, or in f64 where the types
  are f64 or i32, and costs a number of u of that type, which the rest of this list gives.
- map: 16. The compiler's functions are within a few units in the last place, and an expression has several.
- softmax: 32. An exponential of a difference of about 8, and a sum of at most some 200 terms a thread. In f64 the
  reference's own sum counts too: sqrt(length of a row).
- gemm: 1 + sqrt(k), from k roundings with random signs. Matrix units (16-bit types, tf32) cut sums off instead of
  rounding them, always the same way: 1 + k/4. Besides, tf32 keeps 10 bits of each factor: 2 * 2^-10.
- scatter with sums or weights: 2 for each addend of a row. route with normalised weights: 2 + k.
- f64 is twice that: the reference rounds too.
- Values below the normal range of a type, as in f16, are rounded to a fixed step; half of it is allowed for each.
Operations of several ranks run on a group of one, which leaves what it was given. `nop`, `spin`, `work` and `barrier`
have no result. A test of the crate asks for a case of each operation that has one.

Exits with 1 when a case fails. `--backend host --quick` tries the script out without a GPU.
"""
import argparse
import concurrent.futures
import dataclasses
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import torch

from operation_case import DEVICE, HALF_STEP, TORCH, Case, Tensors
from operation_cases import GROUPS


@dataclasses.dataclass
class Outcome:
    case: Case
    # The error and its bound, rounding of tiny values included; the error of a failed run is infinite.
    error: float = 0.0
    bound: float = 0.0
    absolute: float = 0.0
    message: str = ""

    @property
    def held(self):
        return not self.message


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def compare(case: Case, tensors: Tensors) -> Outcome:
    outcome = Outcome(case)
    for name, expected in case.expect(tensors).items():
        actual = tensors[name]
        if actual.shape != expected.shape:
            outcome.message = f"`{name}` is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
            break
        if case.bound is None or not expected.dtype.is_floating_point:
            if actual.dtype != expected.dtype:
                raise TypeError(f"`{name}` is {actual.dtype}, the reference {expected.dtype}")
            wrong = (bits(actual) != bits(expected)).reshape(actual.numel(), -1).any(1)
            if wrong.any():
                first = int(wrong.nonzero()[0])
                outcome.error = math.inf
                outcome.message = (f"`{name}` differs in {int(wrong.sum())} of {actual.numel()}, first at {first}: "
                                   f"{actual.flatten()[first]} for {expected.flatten()[first]}")
                break
            continue
        dtype = next(key for key, value in TORCH.items() if value == actual.dtype)
        # Equal infinities do not differ, and are no scale.
        infinite = expected.isinf() & (actual.double() == expected)
        actual, expected = actual.double().masked_fill(infinite, 0.0), expected.masked_fill(infinite, 0.0)
        difference = (actual - expected).abs()
        scale, peak = expected.norm().item(), expected.abs().max().item()
        absolute = difference.max().item()
        step = HALF_STEP[dtype]
        bound = case.bound + (step * math.sqrt(expected.numel()) / scale if scale else 0.0)
        error = difference.norm().item() / scale if scale else absolute
        largest_error = absolute / peak if peak else absolute
        outcome.error, outcome.bound, outcome.absolute = error, bound, absolute
        # Written so that NaN fails.
        if not (error <= bound and largest_error <= case.bound + (step / peak if peak else 0.0)):
            outcome.message = (f"`{name}`: relative error {error:.2e}, of the largest element {largest_error:.2e}, "
                               f"bound {bound:.2e}")
    return outcome


def workload(cases: list[Case]) -> str:
    buffers = [f"buffer {case.renamed(number, name)}: {declared}" for number, case in enumerate(cases)
               for name, declared in case.buffers.items()]
    steps = [f"  {case.renamed(number, case.text)}" for number, case in enumerate(cases)]
    return "\n".join(["//! Operations whose results are compared.", "", *buffers, "", "step {", *steps, "}", ""])


def run(args, cases: list[Case], folder: pathlib.Path) -> list[Outcome]:
    """Runs the cases as one workload. Where that fails, each half by itself, down to the case at fault."""
    folder.mkdir()
    file, outputs = folder / "operations.aorta", folder / "outputs"
    file.write_text(workload(cases))
    command = [args.aorta, "exec", str(file), "--backend", args.backend, "--effort", "sanity",
               "--config", "observed_iterations=0", "--outputs", str(outputs)]
    command += ["--device", str(args.device)] if args.backend == "cuda" else []
    with args.slots:
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        with args.comparing:
            found = [compare(case, Tensors(outputs, number)) for number, case in enumerate(cases)]
        for path in outputs.iterdir():
            path.unlink()
        return found
    if len(cases) == 1:
        return [Outcome(cases[0], math.inf, message=f"exit code {done.returncode}: {done.stderr.strip()}")]
    half = len(cases) // 2
    return run(args, cases[:half], folder / "first") + run(args, cases[half:], folder / "second")


def table(outcomes: list[Outcome]) -> str:
    lines = ["| operation | type | cases | relative error, largest | bound | absolute error, largest | verdict |",
             "| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    order = list(dict.fromkeys(outcome.case.operation for outcome in outcomes))
    groups: dict[tuple, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: order.index(outcome.case.operation)):
        groups.setdefault((outcome.case.operation, outcome.case.dtype), []).append(outcome)
    for (operation, dtype), group in groups.items():
        failed = sum(not outcome.held for outcome in group)
        verdict = f"**{failed} failed**" if failed else "held"
        if all(outcome.case.bound is None for outcome in group):
            error, bound, absolute = ("differs" if failed else "0"), "0, bit by bit", ("" if failed else "0")
        else:
            # The bound grows with some shapes: the figures are those of the case that comes nearest to its own.
            worst = max(group, key=lambda outcome: outcome.error / outcome.bound if outcome.bound else outcome.error)
            error, bound = f"{worst.error:.2e}", f"{worst.bound:.2e}"
            absolute = f"{max(outcome.absolute for outcome in group):.2e}"
        lines.append(f"| {operation} | {dtype} | {len(group)} | {error} | {bound} | {absolute} | {verdict} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "host"])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="leave the large shapes away")
    parser.add_argument("--only", help="only this operation")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table here too")
    args = parser.parse_args()
    args.slots, args.comparing = threading.Semaphore(args.jobs), threading.Lock()
    torch.backends.cuda.matmul.allow_tf32 = False
    started = time.monotonic()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(32) as pool:
        under_way = []
        for kind, dtypes in GROUPS:
            for dtype in dtypes:
                cases = [case for case in kind(dtype, args.quick) if args.only in (None, case.operation)]
                if cases:
                    place = pathlib.Path(folder) / f"{kind.__name__}_{dtype}"
                    under_way.append(pool.submit(run, args, cases, place))
        for future in under_way:
            outcomes += future.result()
    failures = [outcome for outcome in outcomes if not outcome.held]
    for outcome in failures:
        sizes = ", ".join(f"{name}: {declared}" for name, declared in outcome.case.buffers.items())
        print(f"FAILED {outcome.case.operation} {outcome.case.dtype}: {outcome.case.text} ({sizes}): {outcome.message}")
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else "the CPU"
    summary = (f"{len(outcomes)} cases of aorta's `{args.backend}` backend against PyTorch {torch.__version__} in "
               f"float64 on {where}: {len(failures)} failed.")
    text = f"{summary}\n\n{table(outcomes)}\n"
    print(text)
    print(f"{time.monotonic() - started:.0f} s")
    if args.markdown:
        args.markdown.write_text(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
