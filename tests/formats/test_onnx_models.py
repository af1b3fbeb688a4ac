"""The models of old opsets that the onnx package ships: whole exports of opset 6 to 12, with
expected results.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, numpy_helper

from converter import engines
from converter.formats.onnx import format as onnx_format
from converter.graph.invariants import violations
from onnx_node_cases import differences

DATA = Path(onnx.backend.test.__file__).parent / "data"
MODELS = sorted(
    p
    for kind in ("pytorch-converted", "pytorch-operator", "simple")
    for p in (DATA / kind).glob("*/model.onnx")
)
# operators that are not read, with a word of the refusal
REFUSED = {"test_gradient_of_add": "Gradient", "test_gradient_of_add_and_mul": "Gradient"}


def tensor(path: Path) -> object:
    data = path.read_bytes()
    proto = onnx.TensorProto()
    proto.ParseFromString(data)
    if proto.data_type == TensorProto.UNDEFINED:
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return [numpy_helper.to_array(t) for t in sequence.tensor_values]
    return numpy_helper.to_array(proto)


def numbered(folder: Path, kind: str) -> list[object]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [tensor(p) for p in files]


@pytest.mark.parametrize(
    "path",
    [p for p in MODELS if p.parent.name not in REFUSED],
    ids=lambda p: p.parent.name.removeprefix("test_"),
)
def test_model(path: Path) -> None:
    model = onnx_format.read(path, None)
    assert violations(model.ir) == []
    for folder in sorted(path.parent.glob("test_data_set_*")):
        results = engines.run(
            model, dict(zip([i.name for i in model.inputs], numbered(folder, "input"), strict=True))
        )
        expected = numbered(folder, "output")
        assert [
            d
            for (n, y), e in zip(results.items(), expected, strict=True)
            for d in differences(n, e, y, 1e-3, 1e-5)
        ] == []


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    from converter.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match=REFUSED[name]):
        onnx_format.read(DATA / "simple" / name / "model.onnx", None)


def test_there_are_models() -> None:
    assert len(MODELS) > 100
