"""Single operations that were measured, as rows of a CSV: what shapes.py writes, and what simulated_cases.py reads.

A row has the program of a case, so that it can be simulated again by any later version: buffers, setup and call as the
workload has them, the number of calls in a graph, and whether the caches were cold.
"""
import csv
import json

FIELDS = ("page", "device", "cache", "calls", "operation", "case", "buffers", "setup", "call", "bytes", "measured_us", "pytorch_us",
          "compiled_us")


def row(case, operation, measured, **rest):
    """The row of a drawn case."""
    buffers = {name: [dtype, list(dims)] for name, (dtype, dims) in case.buffers.items()}
    figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in rest.items()}
    return {"operation": operation, "case": case.what, "buffers": json.dumps(buffers), "setup": case.setup, "call": case.call,
            "bytes": case.bytes, "measured_us": round(measured, 3), **figures}


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def program(row):
    """The workload of a row: its calls one after the other, on one stream. Indices are made in the first iteration."""
    lines = ["stream calls"]
    for name, (dtype, dims) in json.loads(row["buffers"]).items():
        initial = " = iota" if name in ("r", "c") else ""
        lines.append(f"buffer {name}: {dtype}{dims}{initial}")
    if row["setup"]:
        lines.append(f"setup {{\n  on calls {{\n    {row['setup']}\n  }}\n}}")
    lines.append(f"step {{\n  on calls {{\n    for call in 0..{row['calls']} {{ {row['call']} }}\n  }}\n}}")
    return "\n".join(lines) + "\n"
