"""netconv compared with other tools: the operator tests of the onnx package as ML Programs
(onnx2coreml, onnxsim), or as Core AI models (coreai-onnx).

    python tests/benchmarks/program_peers.py --judge "COMMAND" [--target mlprogram|coreai]
        [--peer-python PYTHON] [--sample N] [--list]

Operands that a real exporter writes as constants (weights, shapes, axes, pads) are constants here.
Each tool converts all cases in a process of its own, which begins anew after a case that ends it.
COMMAND is called with `- --batch LIST`: each line of LIST is PACKAGE, INPUTS.npz and OUTPUTS.npz,
between tabs; it runs the package and writes the outputs, it should be
an interpreter that is independent of all tools, or the runtime itself. `--peer-python` has
the packages of the other tools.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

# target -> suffix of its packages, and the tools that write them
TARGETS = {
    "mlprogram": (".mlpackage", ("netconv", "onnx2coreml", "onnxsim")),
    "coreai": (".aimodel", ("netconv", "coreai_onnx")),
}
LIMIT = 60  # seconds for one conversion
# operators whose operands after the first are weights
WEIGHTS = """Conv ConvTranspose ConvInteger QLinearConv BatchNormalization InstanceNormalization
LayerNormalization GroupNormalization PRelu LSTM GRU RNN DeformConv Gemm"""
# and those whose integers are data
INDICES = """Gather GatherND GatherElements Scatter ScatterND ScatterElements OneHot Compress
BitShift"""


# the tools, in a process of their own
# --------------------------------------------------------------


def convert(tool: str, source: Path, package: Path) -> None:
    if tool == "netconv":
        import converter

        target = next(t for t, (suffix, _) in TARGETS.items() if suffix == package.suffix)
        converter.convert(source, package, target=target)
    elif tool == "onnx2coreml":
        import onnx2coreml

        made: Any = onnx2coreml.convert(str(source), compute_precision="fp32")
        made.save(str(package))
    elif tool == "coreai_onnx":
        import coreai_onnx

        coreai_onnx.convert(source).save_asset(package)
    else:
        import onnxsim

        onnxsim.export_coreml(onnx.load(source), str(package))


def work(tool: str, folder: Path, begin: int, suffix: str) -> None:
    """Write a line for each case: its number, seconds of processor time (with child processes),
    the error, peak memory so far.
    """
    import resource

    def spent() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))

    sources = sorted((folder / "cases").glob("*.onnx"))
    for i, source in enumerate(sources[begin:], begin):
        package, problem = folder / tool / f"{source.stem}{suffix}", ""
        start = spent()
        try:
            convert(tool, source, package)
        except Exception as e:  # any exception of a tool is its refusal
            problem = f"{type(e).__name__}: {e}"[:200]
        seconds = spent() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print("\n" + json.dumps([i, seconds, problem, peak]), flush=True)


def converted(tool: str, python: str, folder: Path, suffix: str) -> dict[str, list[Any]]:
    """Return the results of `work` for each case."""
    sources = sorted((folder / "cases").glob("*.onnx"))
    (folder / tool).mkdir()
    found: dict[str, list[Any]] = {}
    begin = 0
    while begin < len(sources):
        limit = LIMIT * (len(sources) - begin)
        command = [python, __file__, "--work", tool, str(folder), str(begin), suffix]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("["):
                i, *rest = json.loads(line)
                found[sources[i].stem] = rest
                begin = i + 1
        if begin < len(sources):  # the process ended in this one
            found[sources[begin].stem] = [0.0, f"exit {done.returncode}", 0]
            begin += 1
    return found


# cases --------------------------------------------------------------------------------------------


def frozen(model: onnx.ModelProto, feeds: list[Any]) -> dict[str, Any]:
    """Make inputs that are constant in practice initializers; return the others."""
    kinds = {n.op_type for n in model.graph.node}
    left = {}
    for i, (info, array) in enumerate(zip(list(model.graph.input), feeds, strict=True)):
        data = np.asarray(array)
        parameter = data.dtype == np.int64 and data.ndim < 2 and not kinds & set(INDICES.split())
        if i and (parameter or kinds & set(WEIGHTS.split()) or info.name in ("scales", "roi")):
            model.graph.initializer.append(numpy_helper.from_array(data, info.name))
            model.graph.input.remove(info)
        else:
            left[info.name] = data
    return left


def make_cases(folder: Path, sample: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from onnx_node_cases import as_arrays, expected_difference, expected_refusal, quick_node_cases

    (folder / "cases").mkdir()
    names = [
        n for n in quick_node_cases() if not expected_difference(n) and not expected_refusal(n)
    ]
    names = [n for n in sorted(names) if not n.endswith("expanded")]
    for name in random.Random(0).sample(names, min(sample, len(names))):
        case = quick_node_cases()[name]
        inputs, outputs = case.data_sets[0]
        arrays = [as_arrays(x) for x in (*inputs, *outputs)]
        plain = all(
            isinstance(a, np.ndarray | np.generic)
            and a.dtype.isbuiltin == 1
            and a.dtype.kind in "fiub"
            for a in arrays
        )
        if not plain or case.model.functions:
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        feeds = frozen(model, arrays[: len(inputs)])
        onnx.save(model, folder / "cases" / f"{name}.onnx")
        np.savez(folder / "cases" / f"{name}.in.npz", **feeds)
        wanted = zip(model.graph.output, arrays[len(inputs) :], strict=True)
        np.savez(folder / "cases" / f"{name}.out.npz", **{o.name: np.asarray(a) for o, a in wanted})


# verdicts -----------------------------------------------------------------------------------------


def judged(tool: str, names: list[str], folder: Path, judge: str, suffix: str) -> dict[str, str]:
    """right, wrong or cannot (the program is invalid, or the interpreter fails)."""
    rows = []
    for name in names:
        package = folder / tool / f"{name}{suffix}"
        feeds = in_order(package, folder / "cases" / f"{name}.in.npz")
        rows.append(f"{package}\t{feeds}\t{package.with_suffix('.npz')}")
    (folder / "list").write_text("\n".join(rows))
    subprocess.run([*shlex.split(judge), "-", "--batch", str(folder / "list")], check=False,
                   capture_output=True)  # fmt: skip
    return {
        n: verdict(folder / tool / f"{n}.npz", folder / "cases" / f"{n}.out.npz") for n in names
    }


def in_order(package: Path, feeds: Path) -> Path:
    """The feeds by the names that the package gives its inputs, which keep their order."""
    if package.suffix == ".aimodel":
        return feeds
    from coremltools.proto import Model_pb2

    model = Model_pb2.Model()
    model.ParseFromString(next(package.rglob("*.mlmodel")).read_bytes())
    with np.load(feeds) as given:
        arrays = [given[k] for k in given.files]
    made = package.with_suffix(".in.npz")
    np.savez(made, **{i.name: a for i, a in zip(model.description.input, arrays, strict=False)})
    return made


def verdict(made: Path, wanted: Path) -> str:
    if not made.exists():
        return "cannot"
    with np.load(made) as got, np.load(wanted) as want:
        results, expected = ([z[k] for k in z.files] for z in (got, want))
    if len(results) != len(expected):
        return "wrong"
    for a, b in zip(results, expected, strict=True):
        same = a.size == b.size and np.allclose(
            *(v.reshape(-1).astype(np.float64) for v in (a, b)),
            rtol=1e-3,
            atol=1e-4,
            equal_nan=True,
        )
        if not same:
            return "wrong"
    return "right"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--judge", required=True, metavar="COMMAND")
    parser.add_argument("--target", choices=TARGETS, default="mlprogram")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--sample", type=int, default=200, metavar="N")
    parser.add_argument("--list", action="store_true", help="all cases that are not right")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="netconv-programs-") as name:
        folder = Path(name)
        make_cases(folder, args.sample)
        total = len(list((folder / "cases").glob("*.onnx")))
        print(f"{total} cases; x CPU: netconv's processor time for a case divided by the tool's")
        print(f"{'':12} right wrong cannot refused   x CPU   peak MB")
        suffix, tools = TARGETS[args.target]
        own: dict[str, float] = {}  # netconv's times of the cases that it writes
        for tool in tools:
            python = sys.executable if tool == "netconv" else args.peer_python
            have = [python, "-c", f"import {tool}"]
            if tool != "netconv" and subprocess.run(have, capture_output=True).returncode:
                print(f"{tool:12} not installed in {python}")
                continue
            found = converted(tool, python, folder, suffix)
            written = [
                n
                for n, (_, problem, _) in found.items()
                if not problem and (folder / tool / f"{n}{suffix}").exists()
            ]
            judgements = judged(tool, written, folder, args.judge, suffix)
            counts = list(judgements.values())
            own = own or {n: found[n][0] for n in written}
            both = [own[n] / found[n][0] for n in written if n in own and found[n][0]]
            ratio, peak = statistics.median(both), max(v[2] for v in found.values())
            figures = [counts.count(k) for k in ("right", "wrong", "cannot")]
            line = "{:6}{:6}{:7}".format(*figures) + f"{total - len(written):8}"
            print(f"{tool:12}{line}{ratio:8.2f}{peak / 1e6:10.0f}", flush=True)
            if args.list:
                for n, (_, problem, _) in found.items():
                    why = problem or judgements.get(n, "no package")
                    if why != "right":
                        print(f"  {tool} {n}: {why.splitlines()[0]}")
            shutil.rmtree(folder / tool)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main())
