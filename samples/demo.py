"""Converts each sample network to every format, verifies the result, and measures it on the
network's own test set.

    python samples/demo.py [--out FOLDER]

One row per network and format: the largest difference of any probability of any test sample from
the original network's, the share of test samples that are recognised, the size on disk, and the
verdict of `converter.verify`. Exit status 1 when a conversion is refused or a verdict is not
"same".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import converter
from converter.errors import ConverterError

SAMPLES = Path(__file__).resolve().parent
NETWORKS = ("digits_cnn", "digits_lstm")
# what convert is asked for -> the suffix of the main file
TARGETS = {
    "openvino": ".xml",
    "openvino+ir=7": ".xml",
    "zhouyi": ".txt",
    "onnx": ".onnx",
    "nnapi": ".nnapi.json",
}


@dataclass
class Row:
    network: str
    format: str
    verdict: str
    difference: float | None = None
    accuracy: float | None = None
    size: int | None = None

    def __str__(self) -> str:
        cells = (
            f"{self.network:12}",
            f"{self.format:14}",
            f"{'-' if self.difference is None else format(self.difference, '.1e'):>15}",
            f"{'-' if self.accuracy is None else format(self.accuracy, '.1%'):>9}",
            f"{'-' if self.size is None else format(self.size / 1000, '.1f') + ' kB':>9}",
            f" {self.verdict}",
        )
        return " ".join(cells).rstrip()


HEADER = f"{'network':12} {'format':14} {'max difference':>15} {'accuracy':>9} {'size':>9}  verify"


def probabilities(path: Path, samples: np.ndarray) -> np.ndarray:
    """[N, 10]: the network's only output for each of N samples."""
    model = converter.load(path)
    (name,) = (i.name for i in model.inputs)
    return np.stack(
        [next(iter(model.run({name: sample}).values())).reshape(-1) for sample in samples]
    )


def rows(network: str, out: Path) -> Iterator[Row]:
    source = SAMPLES / f"{network}.mlmodel"
    with np.load(SAMPLES / f"{network}.npz") as data:
        labels = data["labels"]
        (samples,) = (data[name] for name in data.files if name != "labels")
    reference = probabilities(source, samples)
    yield Row(
        network,
        "coreml",
        "(original)",
        accuracy=_accuracy(reference, labels),
        size=source.stat().st_size,
    )
    for target, suffix in TARGETS.items():
        folder = out / network / target.replace("=", "")
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{network}*"):  # of an earlier run
            old.unlink()
        file = folder / f"{network}{suffix}"
        try:
            converter.convert(source, file, target=target)
            got = probabilities(file, samples)
            verdict = "same" if converter.verify(source, file).passed else "different"
        except ConverterError as e:
            yield Row(network, target, f"refused: {e}")
            continue
        size = sum(f.stat().st_size for f in folder.glob(f"{network}*"))
        yield Row(
            network,
            target,
            verdict,
            float(np.abs(got - reference).max()),
            _accuracy(got, labels),
            size,
        )


def _accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == labels).mean())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        help="where the converted networks go (default: out/demo)",
    )
    out = parser.parse_args().out
    print(HEADER, flush=True)
    bad = 0
    for network in NETWORKS:
        for row in rows(network, out):
            print(row, flush=True)
            bad += row.verdict not in ("same", "(original)")
    print(
        f"\nThe converted networks are in {out}. "
        f"{'Every one is the same network.' if not bad else f'{bad} of them failed.'}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
