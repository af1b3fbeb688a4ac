"""Makes the files of this folder: python tests/layers/record.py FORMAT [KIND...], or FILE...

With a format it takes the rows of the format's table that have a sample (see
tests/mapping_samples.py), writes the graph of that one operator, and keeps the layers that stand
alone in their file. The numbers are those of an engine from outside, for that very layer: the file
that the engine runs is made from the stored case. With a file, which may be made by hand, it puts
in the engine's name and the numbers of its outputs (whose types and shapes have to be there).

With `altered` it writes altered.txt anew, which altered.py explains. A new line needs no outcome:
`opset/ReduceMean | half > tflite: ?`.

With `refused` it writes refused.txt anew: read the diff, each new line is a layer that was read.

Nothing is stored where engine and reader differ: the difference is printed. Known impossible cases
are in exceptions.py, with the reason.
"""

# ruff: noqa: E402 - the script finds the modules of the tests by a path that it sets itself
from __future__ import annotations

import collections
import dataclasses
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import onnx_ir as ir

from converter.api import Model, save
from converter.errors import ConverterError, MappingError
from converter.graph.infer import RANDOM, InferenceError
from converter.mapping.rules import Rule
from hostile.supervise import supervised
from layers import altered, cases, feeds
from layers import test_layers as T
from layers.exceptions import EXCEPT
from layers.models import FORMATS, model_of
from layers.test_layers import compare, computed
from mapping_samples import CannotSample, candidates, contexts, sample

# errors for a context and attributes that do not fit each other
_NO_SAMPLE = (ConverterError, MappingError, InferenceError, CannotSample, KeyError, TypeError)
MOST_NUMBERS = 600  # of all tensors of a file
MOST_FILES = 5  # of a kind


def attempts(rule: Rule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Contexts with attribute sets: the ordinary one, and those that differ from it in one
    value.
    """
    for context in feeds.smaller(rule, contexts(rule)):
        values = candidates(rule, context)
        ordinary = {k: v[0] for k, v in values.items()}
        yield context, ordinary
        yield context, {k: v[-1] for k, v in values.items()}
        for key, options in values.items():
            for option in options[1:]:
                yield context, {**ordinary, key: option}


def written(module: Any, rule: Rule, context: str, attrs: dict[str, Any], path: Path) -> Any:
    """The layer that the operator alone becomes, as the reader sees it, or why there is none."""
    try:
        _, b = sample(rule, context, attrs)
        save(Model(ir.Model(b.graph, ir_version=10), "onnx"), path, module.TARGET, module.LAYOUT)
    except _NO_SAMPLE as e:
        return " ".join(str(e).split())[:200]
    return module.taken(path, rule.kind)


def computing(module: Any, engine: Any, case: cases.Case, path: Path) -> str:
    """Puts the engine's numbers into a case; returns the reason against it."""
    if case.model:
        path = cases.FOLDER / module.__name__.rpartition(".")[2] / case.model
    else:
        module.write(module.build(case), path)
    found = engine.run(path, case)
    if isinstance(found, str):
        return f"the engine: {found}"
    for i, t in enumerate(case.outputs):
        if not t.unread:
            numbers = cases.Tensor.of(cases.rounded(found[f"y{i}"]))
            own = {"name": t.name, "state": t.state, "quantized": t.quantized}
            case.outputs[i] = dataclasses.replace(numbers, **own)
    case.engine = engine.name
    if any(np.isnan(x).any() for x in case.expected().values() if x.dtype.kind == "f"):
        return "not a number in the results"
    return ""


def differing(format: str, case: cases.Case) -> str:
    """The differences between the reader and the engine."""
    try:
        case = cases.parsed(cases.text_of(case))
        got = computed(format, case)
        for name, wanted in case.expected().items():
            compare(got[name], wanted, case.rtol, case.atol)
    except Exception as e:  # any error of a reader is to be reported
        return f"{type(e).__name__}: " + " ".join(str(e).split())[:600]
    return ""


class Recorder:
    def __init__(self, format: str, folder: Path) -> None:
        self.format, self.module = format, model_of(format)
        self.path = folder / f"one{self.module.SUFFIX}"
        self.engine = self.module.Engine()
        self.seen: dict[str, set[tuple[str, str]]] = {}  # kind -> words of attributes with a file
        self.taken: dict[str, set[str]] = {}  # kind -> names of its files
        self.had: set[str] = set()  # the signatures of layers that were tried
        self.failed: dict[str, str] = {}

    def rule(self, rule: Rule) -> None:
        if (rule.op in RANDOM) or rule.kind in EXCEPT.get(self.format, {}):
            return
        first = True
        try:
            tried = list(attempts(rule))
        except CannotSample as e:
            self.failed.setdefault(rule.kind, str(e))
            return
        for context, attrs in tried:
            if len(self.taken.get(rule.kind, ())) >= MOST_FILES:
                return
            case = written(self.module, rule, context, attrs, self.path)
            if isinstance(case, str):
                self.failed.setdefault(rule.kind, case)
                continue
            words = set(_words(case))
            new = words - self.seen.get(case.kind, set())
            same = signature(case)
            if not (first or new) or same in self.had:
                continue
            self.had.add(same)
            if reason := self.case(rule, case, new):
                self.failed[case.kind] = f"{context} {attrs}: {reason}"
                continue
            first = False

    def case(self, rule: Rule, case: cases.Case, new: set[tuple[str, str]]) -> str:
        feeds.fill(rule, case)
        numbers = sum(
            np.size(t.values) for t in (*case.inputs, *case.weights.values()) if not t.absent
        )
        if numbers > MOST_NUMBERS:
            return f"{numbers} numbers"
        reason = computing(self.module, self.engine, case, self.path)
        reason = reason or differing(self.format, case)
        if not reason:
            self.seen.setdefault(case.kind, set()).update(_words(case))
            names = self.taken.setdefault(case.kind, set())
            name = _name(rule, case, new, names)
            names.add(name)
            cases.write(case, cases.FOLDER / self.format / f"{name}.toml")
        return reason


def _words(case: cases.Case) -> Iterator[tuple[str, str]]:
    """The features that distinguish variants of a layer: its words, whether it has an attribute at
    all, types.
    """
    for key, value in case.attributes.items():
        text = str(value)
        yield key, text.lower() if re.fullmatch(r"[A-Za-z_]\w*", text) else ""
    yield "inputs", str(len(case.inputs))
    for i, t in enumerate(case.inputs):
        flag = str(t.values) if t.constant and t.type == "bool" and not t.shape else ""
        yield f"input{i}", ("const " if t.constant else "") + np.dtype(t.dtype).kind + flag
    yield "rank", str(len(case.inputs[0].shape)) if case.inputs else ""


def signature(case: cases.Case) -> str:
    """A layer up to the numbers that it is fed with."""
    inputs = [(t.type, t.shape, t.constant, str(t.values)) for t in case.inputs]
    weights = [(name, t.shape) for name, t in case.weights.items()]
    return repr((case.kind, case.version, case.attributes, inputs, weights))


def _name(rule: Rule, case: cases.Case, new: set[tuple[str, str]], names: set[str]) -> str:
    if not names:
        return case.kind
    told = sorted(f"{k}-{v}" if v else k for k, v in new if not k.startswith("input"))
    told += [rule.op.lower()] if not told else []
    name = "-".join([case.kind, *told[:2]]).replace(" ", "")
    number = next(i for i in range(1, 99) if (f"{name}-{i}" if i > 1 else name) not in names)
    return name if number == 1 else f"{name}-{number}"


def record(format: str, kinds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(format, Path(folder))
        for rule in recorder.module.MAPPING.table.rules:
            if not rule.lower_only and (not kinds or rule.kind in kinds):
                recorder.rule(rule)
        for kind, reason in sorted(recorder.failed.items()):
            print(f"{'' if recorder.taken.get(kind) else 'NONE '}{kind}: {reason}")
        every = recorder.module.MAPPING.table.kinds()
        print(f"{len(recorder.taken)} of {len(every)} kinds,",
              sum(map(len, recorder.taken.values())), "files")  # fmt: skip


def fill(path: Path) -> None:
    """Puts the numbers of the engine into one file."""
    format, case = path.resolve().parent.name, cases.read(path)
    module = model_of(format)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"one{module.SUFFIX}"
        reason = computing(module, module.Engine(), case, place) or differing(format, case)
    if reason:
        sys.exit(f"{path}: {reason}")
    cases.write(case, path)


def record_refusals() -> None:
    """Write refused.txt anew."""
    path, found = cases.FOLDER / "refused.txt", collections.defaultdict(set)

    def noted(format: str, file: Path, change: str, positions: Iterable[int]) -> bool:
        found[f"{format} {change} {','.join(map(str, positions))}"].add(file.stem)
        return True

    T.is_refused = noted
    for parameters, test in (
        (T.WITH_CONSTANTS, T.test_a_computed_operand_counts_as_much_as_a_constant),
        (T.EXACT, T.test_a_layer_is_read_alike_for_other_sizes),
    ):
        for parameter in parameters:
            test(*parameter.values)
    head = [line for line in path.read_text("utf-8").splitlines() if line.startswith("#")]
    lines = [f"{key} {' '.join(sorted(files))}" for key, files in sorted(found.items())]
    path.write_text("\n".join([*head, *lines, ""]), "utf-8")


def record_altered() -> None:
    """Fill in the outcomes of altered.txt anew. Where the numbers of a file that is written differ
    from those of the layer, this is printed, and the line gets no outcome.
    """
    warnings.simplefilter("ignore")
    before, found, cases_of = altered.lines(), {}, {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for (name, target), text in before.items():
            try:
                found[name, target] = altered.outcome(name, target, folder)
            except altered.DoesNotApply:
                print(f"{name} > {target}: the change cannot be made")
                found[name, target] = "?"
                continue
            if target and found[name, target] != text:
                cases_of[name, target] = partial(other_numbers, name, target, folder)
        keys = list(cases_of)  # engines do not survive every graph
        for number, answer, detail in supervised(list(cases_of.values())):
            if answer:
                print(f"{' > '.join(keys[number])}: {answer} {detail}")
                found[keys[number]] = "?"
    altered.write_lines(found)


def other_numbers(name: str, target: str, folder: Path) -> str:
    """Return how the numbers of a layer differ after it has been written and read; an empty text if
    they do not, if it is refused, or if onnxruntime cannot run it.
    """
    try:
        model = altered.read(name)
        feeds = altered.feeds(name, model)
        expected = model.run(feeds)
        again = Model.of(altered.through(altered.read(name), target, folder)[1])
    except (ConverterError, MappingError):
        return ""
    if len(again.inputs) != len(feeds):
        return f"{len(again.inputs)} inputs instead of {len(feeds)}"
    pairs = zip(again.inputs, feeds.values(), strict=True)
    try:
        results = again.run({i.name: fitted(a, list(i.shape)) for i, a in pairs})
    except ConverterError as e:
        return f"what is read again does not run: {e}"[:300]
    if results.keys() != expected.keys():  # then the order is that of the source
        results = dict(zip(expected, results.values(), strict=True))
    reasons = (unlike(name, results[key], wanted) for key, wanted in expected.items())
    return next(filter(None, reasons), "")


def fitted(array: Any, dims: list[Any]) -> Any:
    """An array with the axes that the file has."""
    if len(dims) != np.ndim(array):
        return np.reshape(array, [d if isinstance(d, int) else -1 for d in dims])
    sizes = zip(dims, np.shape(array), strict=True)
    return np.reshape(array, [d if isinstance(d, int) else n for d, n in sizes])


def unlike(name: str, got: Any, wanted: Any) -> str:
    """Return how two results differ; those of integers and of short floats may by a step or two."""
    if np.size(got) != np.size(wanted):
        return f"shape {np.shape(got)} instead of {np.shape(wanted)}"
    if np.asarray(wanted).dtype.kind in "OSUT":
        return ""
    short = any(word in name for word in ("half", "halves", "bfloat16", "float16"))
    rtol, atol = (2e-2, 2e-2) if short else (1e-3, 0.21) if "quantized" in name else (1e-3, 1e-4)
    got, wanted = (np.asarray(a, np.float64).reshape(-1) for a in (got, wanted))
    far = np.flatnonzero(~np.isclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True))
    if not far.size:
        return ""
    return f"{got[far[0]]} instead of {wanted[far[0]]} in {far.size} of {wanted.size}"


if __name__ == "__main__":
    if sys.argv[1:] == ["refused"]:
        record_refusals()
    elif sys.argv[1:] == ["altered"]:
        record_altered()
    elif sys.argv[1:2] and sys.argv[1] in FORMATS:
        record(sys.argv[1], sys.argv[2:])
    else:
        for name in sys.argv[1:]:
            fill(Path(name))
