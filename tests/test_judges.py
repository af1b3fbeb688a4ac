"""Samples of every format to every format, each written file in the engine or validator that its
format is for.

Expected numbers are never ours: those of the corpus come from the tools that made it, those of
generated networks from onnxruntime, of the network as it was generated. `judged_refusals.txt` lists
the samples that netconv refuses; any other refusal is a loss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
import networks
from converter.api import Model
from converter.errors import ConverterError
from judged import LEGACY, Judged
from random_variants import variant
from support import NO_CORPUS, corpus_folder

pytestmark = pytest.mark.judges

TARGETS = (
    "onnx",
    "openvino",
    "openvino+ir=10",
    "openvino+ir=7",
    "coreml",
    "tflite",
    "nnapi",
    "nnapi+blob",
    "zhouyi",
)
SUFFIXES = {
    "onnx": ".onnx",
    "openvino": ".xml",
    "coreml": ".mlmodel",
    "tflite": ".tflite",
    "nnapi": ".nnapi.json",
    "zhouyi": ".txt",
}
REFUSALS = Path(__file__).with_name("judged_refusals.txt")

# --- the corpus

# cases of each suite for each target
SUITES = {
    **{"coreml/layers": 10, "coreml/nets": 2},
    **{"openvino/ops": 6, "openvino/op-reference": 6, "openvino/nets": 3},
    **{"openvino/legacy-layers": 5, "openvino/legacy-ops": 6, "openvino/legacy-nets": 1},
    **{"nnapi/level1": 4, "nnapi/level2": 2, "nnapi/level3plus": 8},
    **{"tflite/ops": 6, "tflite/nets": 2},
    **{"zhouyi/ops": 5, "zhouyi/nets": 1, "zhouyi/int8": 1, "zhouyi/int-ops": 3},
}
# expected numbers that are those of one engine's fault or rounding, not of the network
NOT_THE_NETWORK = {
    "wild_v10_Palanivelg_face-detection-adas-0001_FP16_FP16-INT8",  # executed in 8 bits
    "d2s_CRD",  # the legacy engine mixes up the order of blocks
}

# files that are known not to run, and the verdict: an entry goes when it is mended
WANTING: dict[str, str] = {
    # a state is an input there, which the case does not feed
    "openvino+ir=7 tflite/ops/UNIDIRECTIONAL_SEQUENCE_LSTM-peephole-tm1": "cannot",
    # the sign of NaN: 0 by comparisons, nan in LiteRT
    "nnapi+blob tflite/ops/SIGN-zero-nan": "wrong",
}


def sample(target: str) -> list[Any]:
    """Cases for a target: others for each, always the same."""
    corpus = corpus_folder()
    if corpus is None:
        return [
            pytest.param(
                target, None, id=f"{target}-corpus", marks=pytest.mark.skip(reason=NO_CORPUS)
            )
        ]
    found = []
    for suite, number in SUITES.items():
        order = sorted(
            (p for p in (corpus / suite).iterdir() if p.name not in NOT_THE_NETWORK),
            key=lambda p: hashlib.sha256(f"{target} {p.name}".encode()).digest(),
        )
        drawn = list(islice((p for p in order if (p / "outputs.npz").exists()), number))
        assert drawn, f"no cases in {corpus / suite}"
        found += [
            pytest.param(target, c, id=f"{target}-{suite}-{c.name}", marks=pytest.mark.corpus)
            for c in drawn
        ]
    return found


@pytest.fixture(scope="module")
def judges() -> Iterator[Any]:
    """The judge of a target; tests come target by target, so that one is kept."""
    kept: list[Judged] = []

    def judge(target: str) -> Judged:
        if not kept or kept[0].target != target:
            while kept:
                kept.pop().close()
            kept.append(Judged(target))
        return kept[0]

    yield judge
    while kept:
        kept.pop().close()


@cache
def refusals() -> frozenset[str]:
    return frozenset(
        line
        for line in REFUSALS.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )


def demand_right(judged: Judged, name: str, case: Path, keep: Path) -> None:
    verdict, detail = judged.verdict(case, keep)
    if verdict == "unjudged":
        pytest.skip(f"this judge cannot say: {detail}")
    if verdict == "refused" and name in refusals():
        return
    if verdict != WANTING.get(name, "right"):
        pytest.fail(f"{verdict}: {detail}", pytrace=False)


@pytest.mark.parametrize(("target", "case"), [p for t in TARGETS for p in sample(t)])
def test_the_corpus(judges: Any, target: str, case: Path, tmp_path: Path) -> None:
    demand_right(
        judges(target),
        f"{target} {case.parent.parent.name}/{case.parent.name}/{case.name}",
        case,
        tmp_path,
    )


# --- generated networks: to a format, and from that file to every other

SOURCES = ("onnx", "openvino", "openvino+ir=7", "coreml", "tflite", "nnapi", "zhouyi")
NETWORKS = (
    *(
        "resnet",
        "mobilenet",
        "unet",
        "squeezenet",
        "yolo",
        "squeeze_excite",
        "shuffle_by_hand",
        "dense",
        "dense_and_more",
        "keras",
        "detector",
    ),
    *("per_axis", "last_ranks", "with_image", "branches", "attention", "signal", "dense_quantized"),
)
# those that onnxruntime runs as they are generated
VARIANTS = (
    *(
        0,
        2,
        3,
        5,
        8,
        9,
        10,
        11,
        12,
        14,
        16,
        17,
        18,
        20,
        21,
        22,
        24,
        25,
        31,
        32,
        33,
        35,
        36,
        37,
        38,
        40,
        41,
        43,
        44,
        45,
        46,
        48,
        49,
        50,
        51,
        52,
        55,
    ),
    *(56, 57, 59),
)
GENERATED = (*NETWORKS, *(f"variant-{i}" for i in VARIANTS))
EACH = 4  # networks for each source and target


def generated(name: str) -> tuple[Model, dict[str, np.ndarray]]:
    if name in NETWORKS:
        networks.RNG.bit_generator.state = np.random.PCG64(7).state
        model = networks.network(getattr(networks, name))
        return Model(model, "onnx"), networks.feeds_of(model)
    number = int(name.removeprefix("variant-"))
    drawn = variant(f"judged {number}", 1 + number % 8)
    assert drawn is not None
    return drawn.model, drawn.feeds


def case_of(name: str, folder: Path) -> Path:
    """A network as it was generated, its inputs, and the results of onnxruntime: nothing here
    goes through a writer of ours.
    """
    import onnxruntime

    model, feeds = generated(name)
    folder.mkdir()
    ir.save(model.ir, folder / "model.onnx")
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    wanted = dict(zip(names, session.run(names, feeds), strict=True))
    half = any(a.dtype == np.float16 for a in wanted.values())
    scales = {
        n: float(np.max(np.abs(a[np.isfinite(a)]), initial=1.0)) if a.dtype.kind == "f" else 0.0
        for n, a in wanted.items()
    }
    np.savez(folder / "inputs.npz", **feeds)  # type: ignore[arg-type]
    np.savez(folder / "outputs.npz", **wanted)
    tolerances = {
        "rtol": 1e-2 if half else 1e-3,
        "atol": {n: (4e-3 if half else 2e-4) * s for n, s in scales.items()},
    }
    (folder / "case.json").write_text(json.dumps(tolerances))
    return folder


def written_in(source: str, case: Path, folder: Path) -> Path:
    """The same case with the model in another format; skips where that cannot express it."""
    folder.mkdir()
    for file in ("inputs.npz", "outputs.npz", "case.json"):
        (folder / file).write_bytes((case / file).read_bytes())
    with np.load(case / "inputs.npz") as stored:
        shapes = {
            i.name: list(stored[i.name].shape) for i in converter.load(case / "model.onnx").inputs
        }
    static = {} if source in ("onnx", "openvino", "coreml") else {"inputs": shapes}
    try:
        converter.convert(
            case / "model.onnx",
            folder / f"model{SUFFIXES[source.partition('+')[0]]}",
            target=source,
            **static,
        )  # type: ignore[arg-type]
    except ConverterError as e:
        pytest.skip(f"{source} cannot express it: {e}")
    return folder


def pairs() -> list[Any]:
    """Networks of both kinds for each pair; with every pair the next ones."""
    found, known, drawn = [], 0, 0
    for target in TARGETS:
        for source in SOURCES:
            for number in range(EACH):
                if number % 2:
                    name, drawn = f"variant-{VARIANTS[drawn % len(VARIANTS)]}", drawn + 1
                else:
                    name, known = NETWORKS[known % len(NETWORKS)], known + 1
                found.append(
                    pytest.param(source, target, name, id=f"{target}-from-{source}-{name}")
                )
    return found


@pytest.mark.parametrize(("source", "target", "name"), pairs())
def test_generated_networks(
    judges: Any, source: str, target: str, name: str, tmp_path: Path
) -> None:
    judged = judges(target)
    case = written_in(source, case_of(name, tmp_path / "generated"), tmp_path / "case")
    demand_right(judged, f"{target} {source}/{name}", case, tmp_path / "kept")


# --- the tests themselves


def test_a_wrong_file_is_noticed(judges: Any, tmp_path: Path) -> None:
    """Numbers that a network does not have are wrong in every engine; a conversion that is not
    possible is refused.
    """
    case = case_of("squeeze_excite", tmp_path / "case")
    with np.load(case / "outputs.npz") as stored:
        np.savez(tmp_path / "outputs.npz", **{n: stored[n] * 1.05 + 0.01 for n in stored.files})
    right = (case / "outputs.npz").read_bytes()
    for target in TARGETS:
        judged = judges(target)
        (case / "outputs.npz").write_bytes(right)
        assert judged.verdict(case, tmp_path / "kept")[0] == "right", target
        (case / "outputs.npz").write_bytes((tmp_path / "outputs.npz").read_bytes())
        assert judged.verdict(case, tmp_path / "kept")[0] == "wrong", target


def test_the_list_of_refusals_is_of_these_samples() -> None:
    """So that a case that left the sample does not stay excused."""
    ids = {
        f"{p.values[0]} "
        f"{p.values[1].parent.parent.name}/{p.values[1].parent.name}/{p.values[1].name}"
        for t in TARGETS
        for p in sample(t)
        if p.values[1]
    }
    ids |= {f"{p.values[1]} {p.values[0]}/{p.values[2]}" for p in pairs()}
    assert corpus_folder() is None or refusals() <= ids
    assert set(LEGACY) & set(TARGETS)
