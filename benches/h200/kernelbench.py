#!/usr/bin/env python3
"""KernelBench's problems beside KernelBench's own modules: shapes, results, and times beside PyTorch eager.

    git clone https://github.com/ScalingIntelligence/KernelBench
    python3 benches/h200/kernelbench.py --aorta target/release/aorta --kernelbench KernelBench [--times OUT.json]

The checkout's modules are executed, nothing of them is copied. For each problem of `aorta baseline --dry-run`:

- shapes: the module runs on PyTorch's `meta` device in its own size. Its inputs, parameters and result have the shapes of the
  buffers `x`, `x2`, …, `weight`, `bias`, … and `y` that `aorta dump model` lists.
- results: aorta runs the problem in a small size (`preset tiny`) with `--outputs`, f32 without tf32. The same sizes replace
  the module's own; its parameters get the buffers' contents, and it computes the result once more in f64. A result agrees if
  the norm of the difference is below 1e-4 of the result's norm, and no element is off by more than 1e-3 of the largest one.
  Indices agree exactly. Dropout draws other numbers in PyTorch: such a problem is compared with dropout off, by running
  aorta's file with its `dropout` replaced by a copy.
- times, with --times: PyTorch eager in the module's own size, as KernelBench measures (3 trials to warm up, 100 with a flushed
  L2 cache between two events), written in KernelBench's form. `aorta compare --fast-p OUT.json …_eager.json` has the speed-ups.

`--backend host` compares results without a GPU. `--only TEXT` takes problems whose name contains it, `--part K/N` every N-th of
them from the K-th on, for several processes side by side. `--trials N` times fewer trials. Exits with 1 if a result differs.
"""
import argparse
import ast
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

import numpy
import torch

# The module's globals that are parameters of ours, by workload.
GLOBALS = {
    "product_chains": {"batch_size": "batch", "in_features": "inputs", "input_size": "inputs", "out_features": "outputs",
                       "hidden_size": "outputs", "output_size": "outputs2", "num_groups": "groups"},
    "activations": {"batch_size": "rows", "dim": "width"},
    "normalizations": {"batch_size": "samples", "features": "channels", "num_groups": "groups", "dim1": "height",
                       "dim2": "width", "dim": "width"},
    "pools": {"batch_size": "batch", "features": "channels", "channels": "channels", "in_channels": "channels",
              "sequence_length": "width", "input_length": "width", "depth": "depth", "height": "height", "width": "width",
              "dim1": "depth", "dim2": "height", "dim3": "width"},
    "reductions": {"batch_size": "batch", "dim1": "rows", "dim2": "width"},
    "scans": {"batch_size": "rows", "input_shape": ["width"]},
    "losses": {"batch_size": "batch", "num_classes": "width", "input_shape": ["width"]},
    "dot_product_attention": {"batch_size": "batch", "num_heads": "heads", "sequence_length": "positions",
                              "embedding_dimension": "size"},
    "convolutions": {"batch_size": "batch", "in_channels": "channels", "out_channels": "filters", "depth": "depth",
                     "depth_in": "depth", "height": "height", "height_in": "height", "width": "width", "width_in": "width",
                     "length": "width"},
    "chains": {"batch_size": "batch", "in_channels": "channels", "out_channels": "filters", "depth": "depth", "D": "depth",
               "height": "height", "H": "height", "width": "width", "W": "width", "num_groups": "groups"},
}
# Convolutions whose input has its sizes in another order: our names of PyTorch's depth, height and width.
ORDERS = {54: ("depth", "width", "height"), 59: ("width", "depth", "height"), 60: ("width", "height", "depth"),
          68: ("depth", "width", "height")}
# Chains whose `groups` are those of a normalization.
GROUPS = {"60", "61", "83", "92"}
# Parameters that say what is computed; the others are sizes, which a small run has from `preset tiny`.
KEPT = {"problem", "dims", "kernel", "kernel_second", "kernel_third", "stride", "stride_second", "padding", "padding_second",
        "padding_third", "dilation", "dilation_second", "output_padding", "groups", "window", "transpose_a", "transpose_b"}
TOLERANCE, LARGEST = 1e-4, 1e-3


def products(number):
    """The globals of products, whose names differ from problem to problem."""
    if number == 3:
        return {"batch_size": "batch", "m": "m", "k": "k", "n": "n"}
    if number == 10:
        return {"N": "batch", "M": "m", "K": "k", "L": "n"}
    if number == 11:
        return {"b": "batch", "i": "outer", "j": "m", "l": "k", "k": "n"}
    if number == 5:
        return {"M": "m", "N": "k"}
    if number == 9:
        return {"M": "m", "N": "k"}
    if number == 12:
        return {"N": "m", "M": "n"}
    return {"M": "m", "K": "k", "N": "n"}


class Problem:
    def __init__(self, line, folder):
        name, command = line.split(": aorta exec ", 1)
        self.level, file = name.split("/", 1)
        self.file = file.rsplit(", ", 1)[0]
        words = shlex.split(command)
        self.workload = words[0]
        self.sets = [word for word in words[1:] if word.startswith("--set=")]
        self.source = (folder / "KernelBench" / self.level / self.file).read_text()

    @property
    def number(self):
        return int(self.file.split("_")[0])

    def globals(self):
        kind = self.workload.split("/")[1]
        if kind == "matrix_products":
            return products(self.number)
        if kind == "product_chains" and self.number != 45:
            return {**GLOBALS[kind], "output_size": "outputs"}
        if kind == "convolutions":
            return {**GLOBALS[kind], **dict(zip(("depth", "height", "width"), ORDERS.get(self.number, ("depth", "height", "width"))))}
        if kind in ("convolution_chains", "transposed_chains"):
            more = {"groups": "groups"} if str(self.number) in GROUPS else {}
            return {**GLOBALS["chains"], **more}
        return GLOBALS[kind]

    def module(self, device, values=None):
        """The module with its inputs; `values` replace sizes."""
        tree = ast.parse(self.source)
        if values:
            body = []
            for statement in tree.body:
                body.append(statement)
                if isinstance(statement, ast.Assign):
                    names = [node.id for target in statement.targets for node in ast.walk(target)
                             if isinstance(node, ast.Name)]
                    for name in names:
                        value = self.globals().get(name)
                        if isinstance(value, list):
                            body += ast.parse(f"{name} = ({values[value[0]]},)").body
                        elif value in values:
                            body += ast.parse(f"{name} = {values[value]}").body
            tree.body = body
        context = {"__name__": "problem"}
        with torch.device(device):
            exec(compile(tree, self.file, "exec"), context)
            model = context["Model"](*context["get_init_inputs"]())
            return model, context["get_inputs"]()


def parameters(model):
    """The module's parameters by the names of our buffers: its own first, then those of layers."""
    own = [(f"parameter{number or ''}".replace("1", "2") if number < 2 else f"parameter{number + 1}", parameter)
           for number, (_, parameter) in enumerate(model.named_parameters(recurse=False))]
    found = dict(own)
    # A weight without a layer is that of a product.
    if "weight" in dict(model.named_parameters(recurse=False)):
        found = {"weight": model.weight}
    layers = norms = 0
    for module in model.modules():
        if module is model or not list(module.parameters(recurse=False)):
            continue
        if isinstance(module, (torch.nn.Linear, torch.nn.modules.conv._ConvNd)):
            layers += 1
            prefix = ("", "2")[layers - 1]
            found[f"weight{prefix}"] = module.weight
            if module.bias is not None:
                found[f"bias{prefix}"] = module.bias
        else:
            norms += 1
            prefix = ("norm", "norm2")[norms - 1]
            found[f"{prefix}.weight"], found[f"{prefix}.bias"] = module.weight, module.bias
    return found


def memories(aorta, problem, extra):
    """The parameters and the shapes of the buffers of a problem."""
    command = [aorta, "dump", "model", problem.workload, *problem.sets, *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    text = done.stdout
    params = dict(re.findall(r"^param (\w+) = (.*)$", text, re.M))
    shapes = {name: [int(size) for size in sizes.split(",") if size.strip()]
              for name, sizes in re.findall(r"^memory (\S+): \w+\[(.*?)\]", text, re.M)}
    return params, shapes


def check_shapes(args, problem):
    model, inputs = problem.module("meta")
    _, shapes = memories(args.aorta, problem, [])
    with torch.no_grad():
        result = model(*inputs)
    wanted = {"y": result, **dict(zip(["x", "x2", "x3"], [given for given in inputs if isinstance(given, torch.Tensor)]))}
    for name, tensor in wanted.items():
        sizes = [size for size in tensor.shape if size != 1]
        if name == "y" and list(tensor.shape) != shapes[name] or sizes != [size for size in shapes[name] if size != 1]:
            return f"`{name}` is {shapes[name]}, PyTorch's {list(tensor.shape)}"
    for name, parameter in parameters(model).items():
        if name in shapes and parameter.numel() != numpy.prod(shapes[name], dtype=int):
            return f"`{name}` is {shapes[name]}, PyTorch's {list(parameter.shape)}"
    return None


# Sizes of a small run beside those of `preset tiny`, where the module has fixed ones or a norm of a dimension's length.
SMALL = {("level1", 4): ["--set=n=1"],
         ("level1", 50): ["--set=channels=3", "--set=filters=96", "--set=height=224", "--set=width=224"],
         ("level1", 100): ["--set=batch=20"], ("level2", 3): ["--set=filters=20"], ("level2", 34): ["--set=filters=20"]}


def check_results(args, problem, folder):
    extra = ["--preset=tiny", *SMALL.get((problem.level, problem.number), []),
             *(["--set=compute=f32"] if args.f32(problem) else [])]
    # Sizes of the problem itself would hide the preset's.
    kept = KEPT - ({"groups"} if "conv" not in problem.workload or "chains" in problem.workload else set())
    problem.sets = [word for word in problem.sets if word.split("=")[1] in kept]
    params, _ = memories(args.aorta, problem, extra)
    workload = problem.workload
    text = (args.root / "workloads" / f"{workload}.aorta").read_text()
    if "dropout" in params.get("problem", ""):
        workload = folder / "without_dropout.aorta"
        workload.write_text(re.sub(r"dropout\((\w+), p: 0\.2", r"copy(\1", text))
    outputs = folder / "outputs"
    command = [args.aorta, "exec", str(workload), *problem.sets, *extra, "--backend", args.backend, "--effort", "sanity",
               "--outputs", str(outputs)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.strip()}"
    found = {path.stem: torch.from_numpy(numpy.load(path)) for path in outputs.iterdir()}
    values = {name: value for name, value in params.items() if value.isdigit()}
    model, inputs = problem.module("cpu", values)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model = model.double()
    missing = []
    with torch.no_grad():
        for name, parameter in parameters(model).items():
            given, part = found.get(name.split(".")[0]), name.partition(".")[2]
            if given is not None and part:
                # The parts of a buffer lie one behind the other.
                first = ["weight", "bias"].index(part) * parameter.numel()
                given = given[first:first + parameter.numel()]
            if given is None:
                missing.append(name)
            elif given.numel() != parameter.numel():
                return f"`{name}` has {given.numel()} elements, PyTorch's {parameter.numel()}"
            else:
                parameter.copy_(given.reshape(parameter.shape))
        # A parameter that the forward does not use has no buffer.
        given = iter([found["x"], found.get("x2"), found.get("x3")])
        tensors = []
        for own in inputs:
            if not isinstance(own, torch.Tensor):
                tensors.append(own)
                continue
            tensor = next(given).reshape(own.shape)
            tensors.append(tensor.double() if own.dtype.is_floating_point else tensor.to(own.dtype))
        expected = model(*tensors)
    actual = found["y"]
    if list(actual.shape) != list(expected.shape):
        return f"the result is {list(actual.shape)}, PyTorch's {list(expected.shape)}"
    if not expected.dtype.is_floating_point:
        return None if torch.equal(actual, expected) else "indices differ"
    difference = (actual.double() - expected).abs()
    scale, peak = expected.norm().item() or 1.0, expected.abs().max().item() or 1.0
    error, largest = difference.norm().item() / scale, difference.max().item() / peak
    args.largest = max(args.largest, error)
    held = error <= TOLERANCE and largest <= LARGEST
    note = f" (without a buffer: {', '.join(missing)})" if missing else ""
    return None if held else f"relative error {error:.2e}, of the largest element {largest:.2e}{note}"


def time_eager(problem, trials):
    """PyTorch eager in the module's own size; the times in ms of the trials."""
    model, inputs = problem.module("cuda")
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times = []
    with torch.no_grad():
        for trial in range(3 + trials):
            torch.cuda.synchronize()
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            model(*inputs)
            end.record()
            torch.cuda.synchronize()
            if trial >= 3:
                times.append(begin.elapsed_time(end))
    rounded = {"mean": statistics.fmean(times), "std": statistics.pstdev(times), "min": min(times), "max": max(times)}
    return {**{name: float(f"{value:.3g}") for name, value in rounded.items()}, "num_trials": len(times),
            "hardware": torch.cuda.get_device_name(), "gpu_type": "NVIDIA", "device": "cuda:0"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aorta", default="target/release/aorta")
    parser.add_argument("--kernelbench", type=pathlib.Path, required=True)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "host"])
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--times", type=pathlib.Path)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--times-only", action="store_true", help="compare no shapes and no results")
    args = parser.parse_args()
    args.root = pathlib.Path(__file__).resolve().parents[2]
    args.largest = 0.0
    args.f32 = lambda problem: "compute" in (args.root / "workloads" / f"{problem.workload}.aorta").read_text()
    listed = subprocess.run([args.aorta, "baseline", "--mode", "eager", "--backend", "sim", "--dry-run"], capture_output=True,
                            text=True, check=True).stdout
    problems = [Problem(line, args.kernelbench) for line in listed.splitlines() if args.only in line]
    first, parts = (int(number) for number in args.part.split("/"))
    problems = problems[first - 1::parts]
    failed, timings = 0, {}
    for problem in problems:
        if args.times:
            timings.setdefault(problem.level, {})[problem.file] = time_eager(problem, args.trials)
            torch.cuda.empty_cache()
            # Written each time: a run that is cut off has what it measured.
            args.times.write_text(json.dumps(timings, indent=2) + "\n")
            if args.times_only:
                continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                why = check_shapes(args, problem) or check_results(args, problem, pathlib.Path(folder))
        except (RuntimeError, ValueError, KeyError) as error:
            why = f"{type(error).__name__}: {error}"
        if why:
            failed += 1
            print(f"{problem.level}/{problem.file}: {why}", flush=True)
    print(f"{len(problems) - failed} of {len(problems)} problems have PyTorch's shapes and results; the largest relative error "
          f"is {args.largest:.1e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
