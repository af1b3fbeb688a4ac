"""Execute a model on data from files, and describe its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from converter import engines
from converter.commands.verify.feeds import SEEDED, Feed
from converter.errors import UsageError, cannot_write, output_exists
from converter.graph.infer import Array, Arrays
from converter.graph.network import Network
from converter.io import progress
from converter.io.files import Output

Results = list[tuple[str, Arrays]]


def run(model: Network, feeds: Sequence[Feed], engine: str = "onnxruntime") -> Results:
    """Return (name of the input set, outputs by name) for each set of inputs. A generated set that
    the model rejects is skipped, as long as there are others. Raises NothingComparedError N403 or
    X208 if the engine cannot run the model.
    """
    with progress.step("compiling"), engines.only_running():
        prepared = engines.get(engine).prepare(model)
    results: Results = []
    refused: UsageError | None = None
    for f in feeds:
        try:
            with progress.step(f"running on {f.name}"):
                results.append((f.name, prepared.run(f.arrays)))
        except UsageError as e:
            if f.name not in SEEDED:
                raise
            refused = e
    if refused is not None and not results:
        raise refused
    return results


def write(results: Results, path: Path, force: bool) -> None:
    """Write one .npz file or, for several input sets, a folder with one file named after each."""
    single = len(results) == 1 and not path.is_dir()
    files = [path] if single else [path / f"{Path(name).stem}.npz" for name, _ in results]
    try:
        if not single:
            path.mkdir(parents=True, exist_ok=True)
        for file, (_, outputs) in zip(files, results, strict=True):
            if file.exists() and not force:
                raise output_exists(file)
            save_arrays(file, dict(_arrays(outputs)))
    except OSError as e:
        raise cannot_write(path, e) from None


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file, which appears complete or not at all."""
    plain: dict[str, Any] = {
        n: a.astype(str) if a.dtype == object else a for n, a in arrays.items()
    }
    with Output(path) as out, out.open() as f:
        np.savez(f, **plain)


def _arrays(outputs: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield a sequence as one array for each entry, NAME.0 and so on; nothing for an empty optional
    value.
    """
    for name, value in outputs.items():
        if isinstance(value, list):
            yield from ((f"{name}.{i}", np.asarray(v)) for i, v in enumerate(value))
        elif value is not None:
            yield name, value


def describe(array: Array | list[Any] | None) -> dict[str, Any]:
    """Return type, shape and, for numbers, the range and mean of the finite ones. The shape of a
    sequence is the number of its entries.
    """
    if array is None or isinstance(array, list):  # an empty optional output
        return (
            {"type": "none", "shape": []}
            if array is None
            else {"type": "sequence", "shape": [len(array)]}
        )
    base: dict[str, Any] = {
        "type": "string" if array.dtype.kind in "OUS" else str(array.dtype),
        "shape": list(array.shape),
    }
    if array.dtype.kind in "OUS" or not array.size:
        return base
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return {**base, "finite": 0}
    return {
        **base,
        "min": float(finite.min()),
        "max": float(finite.max()),
        "mean": float(finite.mean()),
        "finite": int(finite.size),
    }


def line(array: Array | list[Any] | None) -> str:
    """Return type, shape and range of an array in one line."""
    d = describe(array)
    text = f"{d['type']}[{','.join(map(str, d['shape']))}]"
    if "min" in d:
        text += f"  min {d['min']:.6g}  mean {d['mean']:.6g}  max {d['max']:.6g}"
    if isinstance(array, np.ndarray) and d.get("finite", array.size) < array.size:
        text += f"  {array.size - d['finite']} values are not finite"
    return text
