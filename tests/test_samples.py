"""The sample networks: small, complete, and as good on their test sets as their description
says.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import converter
from support import SAMPLES

# network -> (input, its shape)
NETWORKS = {"digits_cnn": ("image", (1, 8, 8)), "digits_lstm": ("rows", (8, 1, 8))}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_sample_recognizes_its_test_set(name: str) -> None:
    feature, shape = NETWORKS[name]
    with np.load(SAMPLES / f"{name}.npz") as data:
        inputs, labels = data[feature], data["labels"]
    assert inputs.shape == (len(labels), *shape)
    assert inputs.dtype == np.float32
    assert np.bincount(labels, minlength=10).min() > 30
    model = converter.load(SAMPLES / f"{name}.mlmodel")
    (declared,) = model.inputs
    assert declared.name == feature
    assert declared.shape is not None and declared.shape[-3:] == shape
    scores = np.stack(
        [model.run({feature: sample})["probabilities"].reshape(-1) for sample in inputs]
    )
    assert scores.shape == (len(labels), 10)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
    accuracy = (scores.argmax(axis=1) == labels).mean()
    described = re.search(
        rf"`{name}\.mlmodel`.*\| ([\d.]+) % \|", (SAMPLES / "README.md").read_text()
    )
    assert described
    assert f"{accuracy:.1%}" == f"{described[1]}%"


def test_samples_are_small() -> None:
    models = list(SAMPLES.glob("*.mlmodel"))
    assert {m.stem for m in models} == set(NETWORKS)
    assert all(m.stat().st_size < 300_000 for m in models)
