"""Each model that the onnx package carries, through each format and back: right, refused by name,
wrong, or crashed.

    python tests/onnx_targets.py TARGET [--only PATTERN] [--part I/N] [--out FILE.jsonl] [--native]

Run by itself it gives the whole table (one process; a part per process makes it parallel). The
tests use `outcome`.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import functools
import json
import os
import re
import sys
import tempfile
import traceback
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_node_cases import (
    as_arrays,
    constant_of,
    differences,
    node_case,
    node_cases,
    quick_node_cases,
)
from support import processor_time

SUFFIX = {
    "onnx": "onnx",
    "openvino": "xml",
    "coreml": "mlmodel",
    "mlprogram": "mlpackage",
    "tflite": "tflite",
    "zhouyi": "txt",
    "nnapi": "nnapi.json",
}
LIMIT_S = 60
Outcome = tuple[str, str]
# (targets, cases) -> why other numbers come out there
DIFFERENT: dict[tuple[str, str], str] = {
    ("onnx.*|openvino", r"bernoulli.*|training_dropout(_default)?(_mask)?"): "random",
    (
        ".*",
        r"resize_downsample_scales_(linear|cubic)_align_corners",
    ): "the expected values contradict the operator's formula",
    (
        "(?!onnx).*",
        r"operator_add(_.*|constant)",
    ): "numbers of double precision that are beyond the range of floats",
    (
        "coreml|openvino.ir=7|zhouyi",
        r"mod_float_edge_cases_fmod_0_.*",
    ): "the formula of the remainder there gives no number for infinite divisors",
    (
        "coreml",
        r"reduce_log_sum_(exp_)?empty_set.*",
    ): "the logarithm there is that of the least positive number for 0",
    (
        "openvino",
        r"reduce_max_empty_set_bool",
    ): "the largest of no truth values at all is true there",
    (
        "zhouyi|nnapi",
        r"bitshift_right_int32_negative_input",
    ): "the least 32-bit integer, halved in 32 bits",
}
# cases that onnx itself refuses: training, types that came after opset 21, pictures that no kernel
# decodes
UNREADABLE = (
    r"(adagrad|adam|momentum|nesterov_momentum).*|gradient_of_.*|image_decoder_.*|.*_e8m0_.*"
    r"|(cast|castlike|quantizelinear|dequantizelinear)_.*(FLOAT4E2M1|U?INT2(_|$)|E8M0|float4e2m1|u?int2(_|$)).*"
)


@functools.cache
def model_cases() -> dict[str, Any]:
    """The whole networks (exported ones among them) in addition to the operator tests."""
    from onnx.backend.test.loader import load_model_tests

    return {
        c.name.removeprefix("test_"): c
        for kind in ("simple", "pytorch-operator", "pytorch-converted")
        for c in load_model_tests(kind=kind)
    }


def names() -> list[str]:
    return sorted([*node_cases(), *model_cases()])


def quick_names() -> list[str]:
    """Those that a sample is drawn from."""
    return sorted([*quick_node_cases(), *model_cases()])


@functools.cache
def first_of_operators() -> set[str]:
    """For each operator the name of the first case that it has."""
    found: dict[tuple[str, str], str] = {}
    for name, case in sorted(node_cases().items()):
        if "_expanded" not in name:  # the operator written out in others
            node = case.model.graph.node[0]
            found.setdefault((node.domain, node.op_type), name)
    return set(found.values())


def unexpected(name: str, target: str, freeze: bool = False) -> str:
    """ "" when the case comes through a target right, or is refused by name where that may be, or
    differs for a known reason.
    """
    verdict, detail = outcome(name, target, freeze=freeze)
    if verdict == "right" or (
        verdict == "refused" and (target != "onnx" or re.fullmatch(UNREADABLE, name))
    ):
        return ""
    if verdict == "wrong" and any(
        re.fullmatch(t, target) and re.fullmatch(n, name) for t, n in DIFFERENT
    ):
        return ""
    return f"{name} -> {target}: {verdict} {detail[:300]}"


def stored(case: Any) -> tuple[Path, list[tuple[list[Any], list[Any]]]]:
    """The model file of a whole network, and its inputs and outputs."""
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    constants = {t.name for t in model.graph.initializer}
    sides = {
        "input": [v for v in model.graph.input if v.name not in constants],
        "output": list(model.graph.output),
    }
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (
            [_stored(data / f"{side}_{i}.pb", v.type) for i, v in enumerate(values)]
            for side, values in sides.items()
        )
        sets.append((inputs, outputs))
    return folder / "model.onnx", sets


def _stored(path: Path, type_: onnx.TypeProto) -> Any:
    from onnx import numpy_helper

    if type_.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if type_.WhichOneof("value") == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def frozen(proto: onnx.ModelProto, inputs: list[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with every input but the first as a constant: as networks have weights, axes and
    sizes.
    """
    result = onnx.ModelProto.FromString(proto.SerializeToString())
    own = {t.name for t in result.graph.initializer}
    fed = [v for v in proto.graph.input if v.name not in own]
    fixed = {
        v.name: x for v, x in zip(fed[1:], inputs[1:], strict=True) if isinstance(x, np.ndarray)
    }
    kept = [v for v in proto.graph.input if v.name not in fixed]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    result.graph.initializer.extend(
        constant_of(v, fixed[v.name]) for v in proto.graph.input if v.name in fixed
    )
    return result, [x for v, x in zip(fed, inputs, strict=True) if v.name not in fixed]


def freezable(name: str) -> bool:
    return name not in model_cases() and len(node_case(name).model.graph.input) > 1


def prepared(
    name: str, folder: Path, freeze: bool = False
) -> tuple[Path, list[tuple[list[Any], list[Any]]], float, float]:
    """The file of a case, its data, and its tolerances."""
    if name in model_cases():
        case = model_cases()[name]
        return *stored(case), case.rtol, case.atol
    case = node_case(name)
    path = folder / "case.onnx"
    proto, sets = case.model, [(as_arrays(i), as_arrays(o)) for i, o in case.data_sets]
    if freeze:
        proto, inputs = frozen(proto, sets[0][0])
        sets = [(inputs, sets[0][1])]
    path.write_bytes(proto.SerializeToString())
    return path, sets, case.rtol, case.atol


@functools.lru_cache(1)
def read(name: str, freeze: bool) -> tuple[Any, list[tuple[list[Any], list[Any]]], float, float]:
    """The model of a case, its data, and its tolerances: read once for every target, as writing
    leaves it as it is.
    """
    import converter

    folder = tempfile.TemporaryDirectory()
    path, *rest = prepared(name, Path(folder.name), freeze)
    model = converter.load(path, "onnx")
    weakref.finalize(model, folder.cleanup)  # weights are views of the file
    return model, *rest


def outcome(name: str, target: str, native: bool = False, freeze: bool = False) -> Outcome:
    """("right" | "refused" | "wrong" | "crash", detail) of one case through one target."""
    from converter.errors import ConverterError

    step = "read"
    try:
        import converter

        with processor_time(LIMIT_S), tempfile.TemporaryDirectory() as folder:
            model, sets, rtol, atol = read(name, freeze)
            written = Path(folder) / f"model.{SUFFIX[target.split('+')[0]]}"
            step = "write"
            converter.save(model, written, target)
            step = "read back"
            again = converter.load(written)
            step = "run"
            problems = results(again, sets, rtol, atol, target, native)
            return ("wrong", "; ".join(problems)) if problems else ("right", "")
    except ConverterError as e:
        return "refused", f"{step}: {e}".replace("\n", " ")
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return (
            "crash",
            f"{step}: {type(e).__name__}: {e} ({Path(where.filename).name}:{where.lineno})".replace(
                "\n", " "
            ),
        )


def results(
    model: Any, sets: Any, rtol: float, atol: float, target: str, native: bool
) -> list[str]:
    problems: list[str] = []
    if native and target.startswith("onnx"):
        onnx.checker.check_model(str(model.source), full_check=True)
    for inputs, outputs in sets:
        feeds = {i.name: x for i, x in zip(model.inputs, inputs, strict=True)}
        found = (
            plain(model, feeds)
            if native and target.startswith("onnx")
            else model.run(feeds, *(["openvino"] if native else []))
        )
        if len(found) != len(outputs):
            return [f"{len(found)} outputs for {len(outputs)}"]
        for want, (key, got) in zip(outputs, found.items(), strict=True):
            problems += (
                differences(key, want, got, rtol, max(atol, 1e-6))
                if target.startswith("onnx")
                else loosely(key, want, got, rtol)
            )
    return problems


def plain(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """The file as it is in onnxruntime, without the engine's own preparations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(model.source), options, providers=["CPUExecutionProvider"]
    )
    return dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, model.check_feeds(feeds)),
            strict=True,
        )
    )


def loosely(key: str, want: Any, got: Any, rtol: float) -> list[str]:
    """As `differences`, for formats with fewer types, and with extents of one more or less."""
    if isinstance(want, list) or want is None or isinstance(got, list):
        return differences(key, want, got, rtol, 1e-4)
    want, got = np.asarray(want), np.asarray(got)
    if want.dtype.kind in "OUS":
        return differences(key, want, got, rtol, 1e-4)
    if [d for d in want.shape if d != 1] != [d for d in got.shape if d != 1]:
        return [f"{key}: shape {got.shape} for {want.shape}"]
    exact = want.dtype.kind in "iub"
    low = (
        want.dtype.kind == "V"
        or want.dtype.name in ("float16", "bfloat16")
        or want.dtype.name.startswith("float8")
    )
    wide = [a.reshape(-1).astype(np.float64) for a in (want, got)]
    return differences(
        key,
        *wide,
        0 if exact else max(rtol, 0.02 if low else 0),
        0 if exact else 1e-2 if low else 1e-4,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--only", default="*")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--native", action="store_true", help="compute with onnxruntime alone, or with OpenVINO"
    )
    parser.add_argument(
        "--freeze", action="store_true", help="all inputs but the first are constants"
    )
    args = parser.parse_args()
    index, parts = (int(n) for n in args.part.split("/"))
    chosen = [n for n in names() if fnmatch.fnmatch(n, args.only)][index::parts]
    if args.freeze:
        chosen = [n for n in chosen if freezable(n)]
    done = (
        {tuple(json.loads(line)[:2]) for line in args.out.read_text().splitlines()}
        if args.out and args.out.exists()
        else set()
    )
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for name in chosen:
        for target in args.targets:
            if (name, target) in done:
                continue
            if args.out:  # a process that dies leaves this line, and is started again
                record(args.out, [name, target, "crash", "the process died"])
            verdict, detail = outcome(name, target, args.native, args.freeze)
            counts[target, verdict] += 1
            if args.out:
                record(args.out, [name, target, verdict, detail[:600]])
            elif verdict != "right":
                print(f"{verdict:8} {target} {name}  {detail[:400]}", flush=True)
    for (target, verdict), n in sorted(counts.items()):
        print(f"{target:20} {verdict:8} {n}")
    return 0


def record(path: Path, row: list[str]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno()) if row[2] == "crash" else None


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    sys.exit(main())
