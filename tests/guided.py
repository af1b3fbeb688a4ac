"""Coverage-guided damage: one target for each codec, for libFuzzer by way of atheris (`pip install
'netconv[fuzz]'`, `make fuzz-guided`).

    python tests/guided.py                      every codec, a minute each
    python tests/guided.py onnx --seconds 600   one of them
    python tests/guided.py onnx --file crash-…  one input again

It starts from a small network in the codec's own form; the side file is that of the
network, undamaged. Inputs that find a fault are kept below --out, and so is the
knowledge about each codec: the next run continues from there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import converter
import mutations
from converter.errors import ConverterError

# codec -> the form of the network that is damaged, and where a file that is read goes on to
TARGETS = {
    **{
        "onnx": ("onnx", "openvino"),
        "onnx-external": ("onnx+external", "coreml"),
        "coreml": ("coreml", "onnx"),
        "mlprogram": ("mlprogram", "onnx"),
        "openvino": ("openvino", "onnx"),
    },
    **{
        "openvino-legacy": ("openvino+ir=7", "zhouyi"),
        "zhouyi": ("zhouyi", "openvino+ir=7"),
        "nnapi": ("nnapi", "onnx"),
    },
    **{"nnapi-blob": ("nnapi+blob", "coreml"), "tflite": ("tflite", "onnx")},
}
LIMIT = 10  # seconds for one input


def prepared(name: str, folder: Path) -> tuple[Path, Callable[[bytes], None]]:
    """The undamaged model file of a codec, in `folder`, and the function for a damaged one."""
    form, target = TARGETS[name]
    with tempfile.TemporaryDirectory() as made:
        whole = mutations.seeds(Path(made), forms=[form])[form]
        mutations.lay_out(mutations.contents(whole), folder)
    path = mutations.model_file(folder / whole.name)
    shutil.copy(path, folder / "undamaged")
    return folder / "undamaged", partial(once, path, form.partition("+")[0], target)


def once(path: Path, source: str, target: str, data: bytes) -> None:
    """Reads `data` instead of the model file and writes the result; a refusal is an answer,
    everything else is a fault.
    """
    path.write_bytes(data)
    out = path.with_name("out") / f"out{mutations.FORMS[target]}"
    out.parent.mkdir(exist_ok=True)
    try:
        converter.save(converter.load(path, source), out, target)
    except ConverterError:
        assert not any(out.parent.iterdir()), "left behind after a refusal"
    for made in out.parent.iterdir():
        made.unlink()


def guide(name: str, out: Path, options: list[str]) -> None:
    """Runs libFuzzer, which ends the process."""
    import atheris

    with tempfile.TemporaryDirectory() as work, atheris.instrument_imports(include=["converter"]):
        seed, call = prepared(name, Path(work))
        learnt = out / name
        learnt.mkdir(parents=True, exist_ok=True)
        shutil.copy(seed, learnt / "undamaged")
        call(seed.read_bytes())  # loads, and so instruments, the modules of the codec
        atheris.Setup([sys.argv[0], str(learnt), *options], call)
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("codec", nargs="?", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for each codec")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/fuzz"),
        help="what is learnt, and inputs that find a fault",
    )
    parser.add_argument("--file", type=Path, help="run one input instead")
    given = parser.parse_args()
    if given.file:
        with tempfile.TemporaryDirectory() as work:
            prepared(given.codec, Path(work))[1](given.file.read_bytes())
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    if given.codec:
        limits = [
            f"-max_total_time={given.seconds}",
            f"-timeout={LIMIT}",
            "-rss_limit_mb=2048",
            "-max_len=65536",
            "-print_final_stats=1",
        ]
        guide(given.codec, given.out, [*limits, f"-artifact_prefix={given.out}/{given.codec}-"])
    commands = [
        [sys.executable, __file__, name, "--seconds", str(given.seconds), "--out", str(given.out)]
        for name in TARGETS
    ]
    failed = [c[2] for c in commands if subprocess.run(c).returncode != 0]
    print(f"faults in {', '.join(failed)}: see {given.out}" if failed else "no faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
