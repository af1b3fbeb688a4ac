"""Networks of PyTorch by way of their ONNX export: the packages that are written of them give
PyTorch's numbers, in the kit's interpreter of ML Programs where it is there, and as netconv
executes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from judged import load_judge

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
nn = torch.nn


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """The parts, one after the other, and a residual."""

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        return x + self.parts(x)


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    """Attention of several heads, of the input to itself."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.inner = causal, nn.Linear(16, 48)
        self.outer = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = (t.reshape(2, -1, 4, 4).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.outer(y.transpose(1, 2).reshape(2, -1, 16))


class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
    """The last step of a recurrent layer."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(16, 8, batch_first=True, **options)

    def forward(self, x: Any) -> Any:
        return self.cell(x)[0][:, -1]


class Cached(nn.Module):  # type: ignore[misc, name-defined]
    """One token of a decoder, whose keys are kept in a cache of six positions."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any, place: Any, past: Any) -> Any:
        """x [1, 8], position [1], past [6, 8] -> [1, 8] and the next past"""
        present = past.index_copy(0, place, self.key(x))
        scores = torch.softmax(self.query(x) @ present.T / 8**0.5, -1)
        return scores @ present, present


def convolution(*more: Any) -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), *more)


IMAGE, WORDS = (1, 3, 16, 16), (2, 6, 16)
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "residual": (
        lambda: convolution(nn.ReLU(), Block(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU())),
        IMAGE,
    ),
    "mobile": (
        lambda: convolution(
            nn.Hardswish(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 1),
            nn.Hardsigmoid(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 5),
            nn.Softmax(-1),
        ),
        IMAGE,
    ),
    "u-net": (
        lambda: convolution(
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2),
            nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.InstanceNorm2d(4, affine=True),
        ),
        IMAGE,
    ),
    "shuffled": (
        lambda: convolution(nn.PReLU(8), nn.PixelShuffle(2), nn.ReflectionPad2d(2)),
        IMAGE,
    ),
    "groups": (lambda: convolution(nn.GroupNorm(2, 8), nn.ELU(), nn.PixelUnshuffle(2)), IMAGE),
    "mixer": (
        lambda: nn.Sequential(
            nn.LayerNorm(16), Block(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        ),
        WORDS,
    ),
    "attention": (lambda: nn.Sequential(nn.LayerNorm(16), Attention(False), nn.Tanh()), WORDS),
    "decoder": (
        lambda: Block(nn.LayerNorm(16), Attention(True), nn.GELU(approximate="tanh")),
        WORDS,
    ),
    "lstm": (lambda: Recurrent("LSTM", num_layers=2), WORDS),
    "gru": (lambda: Recurrent("GRU", bidirectional=True), WORDS),
    "rnn": (lambda: Recurrent("RNN", nonlinearity="relu"), WORDS),
}


def exported(network: Any, inputs: tuple[Any, ...], path: Path, **names: Any) -> Path:
    torch.onnx.export(network, inputs, str(path), opset_version=17, dynamo=False, **names)
    return path


def written(name: str, flavor: str, folder: Path) -> tuple[Path, Any, Any, float]:
    """The package, the feeds, PyTorch's numbers, and how near they have to
    be.
    """
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network, x = make().eval(), torch.randn(*shape)
    package = folder / f"{name}{flavor}.mlpackage"
    source = exported(network, (x,), folder / "m.onnx", input_names=["x"], output_names=["y"])
    converter.convert(source, package, target=f"mlprogram{flavor}")
    return package, x.numpy(), network(x).detach().numpy(), 2e-2 if "fp16" in flavor else 2e-5


FLAVORS = ("", "+ios=18", "+fp16")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_package_equals_pytorch(name: str, flavor: str, tmp_path: Path) -> None:
    package, x, wanted, near = written(name, flavor, tmp_path)
    found = converter.load(package).run({"x": x})["y"]
    np.testing.assert_allclose(found, wanted, rtol=near, atol=near)


@pytest.mark.judges
@pytest.mark.filterwarnings("ignore")
def test_the_interpreter_gives_the_numbers_of_pytorch(tmp_path: Path) -> None:
    """All packages at once, as the kit's judge is slow to start."""
    judge = load_judge("mil-validate")
    made = [written(n, f, tmp_path) for n in NETWORKS for f in FLAVORS]
    answers = judge.run_many([(package, {"x": x}) for package, x, _, _ in made])
    for (package, _, wanted, near), (status, got) in zip(made, answers, strict=True):
        assert status == "ran", f"{package.name}: {got}"
        np.testing.assert_allclose(got["y"], wanted, rtol=near, atol=near, err_msg=package.name)


@pytest.mark.filterwarnings("ignore")
def test_a_cache_is_a_state(tmp_path: Path) -> None:
    """Three tokens one after the other."""
    torch.manual_seed(0)
    network, past = Cached().eval(), torch.zeros(6, 8)
    tokens = [(torch.randn(1, 8), torch.tensor([i])) for i in range(3)]
    names = {"input_names": ["x", "place", "past"], "output_names": ["y", "present"]}
    source = exported(network, (*tokens[0], past), tmp_path / "m.onnx", **names)
    package, states = tmp_path / "m.mlpackage", {"past": "present"}
    converter.convert(source, package, target="mlprogram+ios=18+fp16", state=states)
    model, own = converter.load(package), {}
    for x, place in tokens:
        wanted, past = network(x, place, past)
        found = model.run({"x": x.numpy(), "place": place.numpy(), **own})
        own = {"past": found["present"]}
        np.testing.assert_allclose(found["y"], wanted.detach().numpy(), rtol=2e-2, atol=2e-2)
