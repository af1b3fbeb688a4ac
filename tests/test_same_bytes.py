"""The same input gives the same bytes: in every process, in any order of Python's sets
and wherever its objects lie.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutations import FORMS
from support import HANG, ROOT, SAMPLES

SEEDS = ("0", "1", "20261122")
# the forms to write, STEP, then files or names of networks: for each, in every STEPth form, the
# hashes of written files, or the code of the refusal; networks take turns
WRITE = """if True:
    import hashlib, json, os, sys, tempfile
    from pathlib import Path
    os.fsync = lambda file: None  # nothing here loses its power
    import numpy as np
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/formats"]
    import converter, networks
    from converter.errors import ConverterError
    from converter.api import Model
    from random_variants import variant

    def source(name, folder):
        if Path(name).exists():
            return Path(name)
        networks.RNG.bit_generator.state = np.random.PCG64(7).state
        if hasattr(networks, name):
            model = Model(networks.network(getattr(networks, name)), "onnx")
        else:
            drawn = variant(name, 1 + len(name) % 8)
            if drawn is None:
                return None
            model = drawn.model
        converter.save(model, folder / "source.onnx")
        return folder / "source.onnx"

    # other addresses for all that comes
    kept = [bytearray(97) for _ in range(int(sys.argv[2]) % 1000)]
    found, forms, step = {}, list(json.loads(sys.argv[3]).items()), int(sys.argv[4])
    for number, name in enumerate(sys.argv[5:]):
        with tempfile.TemporaryDirectory() as folder:
            given = source(name, Path(folder))
            for target, suffix in forms[number % step :: step] if given else ():
                out = Path(folder) / f"out {target}"
                out.mkdir()
                try:
                    notes = converter.convert(given, out / f"net{suffix}", target=target)
                    said = [str(d) for d in notes]
                except ConverterError as e:
                    said = [str(d) for d in e.diagnostics]
                said = [s.replace(folder, "") for s in said]
                files = {p.name: p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
                sums = {n: hashlib.sha256(data).hexdigest() for n, data in files.items()}
                found[f"{name} {target}"] = [said, sums]
    print(json.dumps(found))
"""
NETWORKS = ("unet", "dense_quantized", "last_ranks", "attention")


def written(seed: str, sources: tuple[str, ...], step: int) -> dict[str, list[object]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    command = [
        sys.executable,
        "-c",
        WRITE,
        str(ROOT / "tests"),
        seed,
        json.dumps(FORMS),
        str(step),
        *sources,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def demand_equal(
    sources: tuple[str, ...], seeds: tuple[str, ...] = SEEDS[1:], step: int = 1
) -> int:
    """The number of results that were written."""
    first, *others = (written(seed, sources, step) for seed in seeds)
    for other in others:
        assert {k: (v, other[k]) for k, v in first.items() if v != other[k]} == {}
        assert first.keys() == other.keys()
    return sum(bool(files) for _, files in first.values())


@pytest.mark.slow
def test_networks_and_samples_in_every_form() -> None:
    sources = (*NETWORKS, "bytes 0", "bytes 1", str(SAMPLES / "digits_lstm.mlmodel"))
    assert demand_equal(sources, SEEDS) > len(NETWORKS) * len(FORMS) * 3 // 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_many_networks(part: int) -> None:
    """Each in every second form."""
    names = tuple(f"more bytes {i}" for i in range(part, 27, 3))
    assert demand_equal(names, step=2) > len(names) * len(FORMS) // 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite", ["coreml/nets", "openvino/nets", "openvino/legacy-nets", "zhouyi/nets"]
)
def test_the_corpus(suite: str, corpus: Path) -> None:
    """Each network in every third form: reading it gives the same for all."""
    files = ("model.mlmodel", "model.xml", "model.txt")
    cases = sorted((corpus / suite).iterdir())[::9]
    models = [str(p) for case in cases for p in case.iterdir() if p.name in files]
    assert len(models) == len(cases)
    demand_equal(tuple(models), step=3)
