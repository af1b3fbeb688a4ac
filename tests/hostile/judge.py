"""The required answer to a damaged file, for every use of it: the right result, or one clear
refusal and no leftovers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import converter
from converter.api import Model
from converter.cli import app, crash
from converter.commands.explain import CODES
from converter.commands.verify.feeds import generate
from converter.errors import ConverterError, Diagnostic, ExitCode
from converter.formats import of_suffix
from converter.graph.names import unique
from converter.graph.walk import all_nodes
from hostile.supervise import Fault, Late
from mutations import FORMS

COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "-v", "{file}"),
    "inspect text": ("inspect", "--of", "text", "{file}"),
    "inspect json": ("inspect", "--format", "json", "{file}"),
    "check": ("check", "{file}"),
    "check onnx": ("check", "{file}", "-t", "onnx"),
    "check zhouyi": ("check", "{file}", "-t", "zhouyi"),
    "check coreml": ("check", "{file}", "-t", "coreml"),
    "verify": ("verify", "{file}", "{file}"),
    "run": ("run", "{file}"),
    "diff": ("diff", "{file}", "{file}"),
    "roundtrip": ("roundtrip", "{file}", "--via", "openvino"),
    "view": ("view", "{file}", "-o", "{folder}/page.html"),
    "convert": ("convert", "{file}", "-o", "{folder}/out.onnx"),
    "convert map": ("convert", "{file}", "-o", "{folder}/out.xml", "--map"),
}
# exit codes of a command besides 0, 1, 3, 4 and 6
# 9: outputs are the same, values inside that no output depends on are paired by chance
_ALSO = {"verify": (2, 5, 9), "run": (2, 5), "roundtrip": (2, 5, 9)}
_REFUSALS = (ExitCode.UNREADABLE, ExitCode.UNSUPPORTED)
_MOST = 4000  # characters of a message
_ELEMENTS = 300_000  # of all inputs, for models that are executed


def refused(error: ConverterError) -> str:
    """ "refused", when it is a refusal as users shall see it."""
    if error.exit_code not in _REFUSALS:
        raise Fault(f"exit code {error.exit_code}: {error}")
    if not error.diagnostics:
        raise Fault("a refusal without a reason")
    for d in error.diagnostics:
        _readable(d)
    return "refused"


def _readable(d: Diagnostic) -> None:
    text = str(d)
    if d.code not in CODES:
        raise Fault(f"unknown code {d.code}")
    if len(text) > _MOST:
        raise Fault(f"a message of {len(text)} characters: {text[:100]}")
    text.encode("utf-8")


def conversion(path: Path, target: str) -> str:
    """Convert; the written file must be readable and the same network."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"out{FORMS[target]}"
        try:
            model = converter.load(path, of_suffix(path))
            notes = converter.save(model, out, target)
        except ConverterError as e:
            if left := [p.name for p in Path(folder).iterdir()]:
                raise Fault(f"left behind after a refusal: {left}") from None
            return refused(e)
        if target == "nnapi+c":
            return "right, not run"
        try:
            back = converter.load(out, target.partition("+")[0])
        except ConverterError as e:
            raise Fault(f"what was written cannot be read: {str(e)[:250]}") from None
        # the flat form of NNAPI does not store the order of axes
        if target == "nnapi+blob":
            return "right, not run"
        try:
            return same(model, back, "what was written")
        except Fault:
            if any(
                d.code == "X205" for d in notes
            ):  # numbers beyond the narrower type, as the warning said
                return "right, but narrowed"
            raise


def same(model: Model, other: Model, what: str, engine: str = "onnxruntime") -> str:
    """Runs both, where the first can be run."""
    sizes = [
        float(np.prod([d if isinstance(d, int) else 32 for d in i.shape or ()], dtype=float))
        for i in model.inputs
    ]
    if sum(sizes) > _ELEMENTS or len(model.ir.graph) > 300:
        return "right, not run"
    try:
        feeds = generate(model, "normal")
        wanted = model.run(feeds)
    except (ConverterError, MemoryError):
        return "right, not run"
    declared = {o.name: o.shape for o in model.outputs}
    if any(_contradicts(declared.get(n), y.shape) for n, y in wanted.items()):
        return "right, not run"  # the file says two things of one size; netconv believed the other
    names = [i.name for i in other.inputs]
    try:
        got = other.run(
            feeds if set(names) == set(feeds) else dict(zip(names, feeds.values(), strict=True)),
            engine,
        )
    except ConverterError as e:
        if engine != "onnxruntime":
            return f"right, but {engine} refuses"
        if all(d.code == "X208" for d in e.diagnostics):  # random numbers
            return "right, not run"
        raise Fault(f"{what} cannot be executed: {str(e)[:250]}") from None
    try:
        agree(wanted, got, what)
    except MemoryError:  # of the comparison
        return "right, not compared"
    except Fault:
        if engine != "onnxruntime" or not _within_noise(model, other, feeds):
            raise
        return "right, within the noise"
    return "right" if engine == "onnxruntime" else f"right, as {engine}"


def _contradicts(declared: Sequence[int | str | None] | None, shape: tuple[int, ...]) -> bool:
    sizes = shape if declared is None else declared
    return len(sizes) != len(shape) or any(
        isinstance(d, int) and d != n for d, n in zip(sizes, shape, strict=True)
    )


def _within_noise(model: Model, other: Model, feeds: dict[str, Any]) -> bool:
    """Whether the first network itself moves as far when its numbers move by one step: a recurrence
    that grows, the root of a sum that is 0.
    """
    try:
        return converter.verify(model, other, feeds, native="off").passed
    except ConverterError:
        return False


def agree(wanted: dict[str, Any], got: dict[str, Any], what: str) -> None:
    if len(wanted) != len(got):
        raise Fault(f"{what} has {len(got)} outputs instead of {len(wanted)}")
    got = {n: got[n] for n in wanted} if set(got) == set(wanted) else got
    for (name, w), g in zip(wanted.items(), got.values(), strict=True):
        if not isinstance(w, np.ndarray) or w.dtype == object:
            continue
        g = (
            np.asarray(g).reshape(w.shape)
            if np.asarray(g).size == w.size and {np.asarray(g).shape, w.shape} == {(), (1,)}
            else np.asarray(g)
        )
        if g.shape != w.shape:
            raise Fault(f"{what}: {name} has shape {g.shape} instead of {w.shape}")
        with np.errstate(all="ignore"):
            a, b = w.astype(np.float64), g.astype(np.float64)
            finite = np.isfinite(a) & (np.abs(a) < 1e30)
            scale = float(np.max(np.abs(a[finite]), initial=1.0))
            if not np.allclose(b[finite], a[finite], rtol=2e-2, atol=2e-3 * scale, equal_nan=True):
                raise Fault(
                    f"{what} gives other numbers at {name}: {b[finite].reshape(-1)[:4]} "
                    f"instead of {a[finite].reshape(-1)[:4]}"
                )


def outside(path: Path) -> str:
    """Another reader of the same file, where there is one: it must see the same network."""
    try:
        model = converter.load(path, of_suffix(path))
    except ConverterError as e:
        return refused(e)
    if (
        path.suffix == ".xml"
        and path.with_suffix(".bin").is_file()
        and b'version="1' in path.read_bytes()[:4000]
    ):
        return _beside(model, path, "openvino", _openvino)
    return _beside(model, path, "onnxruntime", _onnxruntime) if path.suffix == ".onnx" else "right"


def _beside(
    model: Model, path: Path, engine: str, execute: Callable[[Path, dict[str, Any]], dict[str, Any]]
) -> str:
    """Compare our numbers with those of `execute`, where the inputs are small enough to be made."""
    sizes = [
        float(np.prod([d if isinstance(d, int) else 32 for d in i.shape or ()], dtype=float))
        for i in model.inputs
    ]
    if sum(sizes) > _ELEMENTS:
        return "right, not run"
    try:
        feeds = generate(model, "normal")
        wanted = model.run(feeds)
    except (ConverterError, MemoryError):
        return "right, not run"
    try:
        got = execute(path, feeds)
    except Exception as e:
        return f"lenient: {engine} refuses: {str(e).splitlines()[-1][-150:] if str(e) else ''}"
    agree(wanted, got, engine)
    return f"right, as {engine}"


def _openvino(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    import openvino as ov

    compiled = ov.Core().compile_model(
        ov.Core().read_model(path),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
            "INFERENCE_NUM_THREADS": "1",
        },
    )
    tensors = [
        ov.Tensor(np.require(a.astype(p.get_element_type().to_dtype()), requirements="C"))
        for a, p in zip(feeds.values(), compiled.inputs, strict=True)
    ]
    results = compiled(tensors)
    return {str(i): np.array(results[p]) for i, p in enumerate(compiled.outputs)}


def _onnxruntime(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(
        zip(unique([o.name for o in session.get_outputs()]), session.run(None, feeds), strict=True)
    )


def command(path: Path, name: str) -> str:
    """One command as a user calls it."""
    raised: list[BaseException] = []
    with tempfile.TemporaryDirectory() as folder:
        arguments = [a.format(file=path, folder=folder) for a in COMMANDS[name]]
        before, kept = sys.argv, crash.apologise
        sys.argv, crash.apologise = (
            ["netconv", *arguments],
            lambda e: raised.append(e) or ExitCode.BUG,
        )  # type: ignore[func-returns-value]
        try:
            code = app._guarded()
        finally:
            sys.argv, crash.apologise = before, kept
        if raised:
            raise raised[0]
        left = [p.name for p in Path(folder).iterdir()]
        if left and code not in (0, 1):
            raise Fault(f"exit {code}, left behind: {left}")
    # 8: a damaged size may ask for more memory than there is
    if code not in (0, 1, 3, 4, 6, 8, *_ALSO.get(name, ())):
        raise Fault(f"exit code {code}")
    return f"exit {code}"


def job(path: Path, target: str) -> str:
    """One job of a batch, without its process."""
    from converter.commands.batch import work

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out" / f"net{FORMS[target]}"
        found = work.perform(
            work.Task("convert", str(path), path.name, target, str(out), out.name, {"verify": {}})
        )
        json.dumps(found, ensure_ascii=False, allow_nan=True).encode()
        for d in found["diagnostics"]:
            if d["code"] == "B602":
                raise Fault(f"{d['message']} {d['evidence']}")
        return f"exit {found['exit_code']}"


def _ending(action: Callable[[Path], str]) -> Callable[[Path], str]:
    """A network that turns as long as its own condition says so may be executed for ever, which is
    no fault of the program.
    """

    def judged(path: Path) -> str:
        try:
            return action(path)
        except Late:
            loops = [
                n
                for n in all_nodes(converter.load(path, of_suffix(path)).ir.graph)
                if n.op_type == "Loop"
            ]
            if all(n.inputs[0] is not None for n in loops):
                raise
            return "right, but endless"

    return judged


_KNOWN: dict[str, Callable[[Path], str]] = {
    **{f"-> {t}": lambda p, t=t: conversion(p, t) for t in FORMS},
    **{f"{name}": lambda p, name=name: command(p, name) for name in COMMANDS},
    "batch": lambda p: job(p, "openvino" if p.suffix != ".xml" else "onnx"),
    "outside": outside,
}
ACTIONS = {name: _ending(action) for name, action in _KNOWN.items()}
