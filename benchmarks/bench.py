"""Time and memory of the command line, as ratios that mean the same on every machine.

    python benchmarks/bench.py [--repeat N] [--json FILE]

* start-up: `netconv --help` against a bare click application;
* small: a squeezenet-sized network, each conversion in a fresh process;
* large: a ResNet-50-sized network between ONNX and every other format; time above start-up against `cp` of the weights,
  peak memory against the size of the weights. Anonymous memory leaves out touched pages of mapped files (Linux only).

Best of N runs. The networks are made on the spot with seeded random weights. Exit status 1 when a conversion fails.
This process stays small (standard library only, no large buffers): the peak of a child counts from the size of its parent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

NETCONV = [sys.executable, "-m", "converter.cli"]
BARE_CLICK = "import click\n@click.command()\ndef main():\n    '''Nothing.'''\nmain()"
# what -t is given -> the suffix of the main file
FORMATS = {"onnx": ".onnx", "coreml": ".mlmodel", "openvino": ".xml", "openvino+ir=7": ".xml", "zhouyi": ".txt", "nnapi": ".nnapi.json"}


@dataclass
class Run:
    """One child process: wall seconds, peak resident bytes, peak anonymous bytes (0 where the system does not say)."""

    seconds: float
    resident: int
    anonymous: int
    status: int
    message: str


def run(command: list[str]) -> Run:
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=log, stderr=log)
        anonymous = 0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            anonymous = max(anonymous, _anonymous(child.pid))
            time.sleep(0.002)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(seconds, usage.ru_maxrss * unit, anonymous, child.returncode, lines[-1] if lines else "")


def _anonymous(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon")), 0)
    except OSError:
        return 0


def best(runs: list[Run]) -> Run:
    """The smallest of each measure; the first failure when one failed."""
    failed = next((r for r in runs if r.status), None)
    return failed or Run(min(r.seconds for r in runs), min(r.resident for r in runs), max(r.anonymous for r in runs), 0, "")


def copy_seconds(size: int, folder: Path, repeat: int) -> float:
    source, target = folder / "weights", folder / "weights.copy"
    with source.open("wb") as f:
        for start in range(0, size, 1 << 20):
            f.write(os.urandom(min(1 << 20, size - start)))
    times = []
    for _ in range(repeat + 2):
        target.unlink(missing_ok=True)
        times.append(run(["cp", str(source), str(target)]).seconds)
    source.unlink()
    target.unlink()
    return min(times)


def convert(source: Path, target: str, folder: Path, repeat: int) -> tuple[Run, Path]:
    """Every run writes into an empty folder; the last result stays for the way back."""
    runs = []
    output = folder / target.replace("=", "") / f"{source.stem}{FORMATS[target]}"
    for _ in range(repeat):
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir(parents=True)
        runs.append(run([*NETCONV, "convert", str(source), "-o", str(output), "-t", target]))
    return best(runs), output


def pairs(source: Path, folder: Path, repeat: int) -> Iterator[tuple[str, Run]]:
    """From ONNX to every format, and from each result back to ONNX."""
    for target in FORMATS:
        result, output = convert(source, target, folder / "there", repeat)
        yield f"onnx -> {target}", result
        if target != "onnx" and result.status == 0:
            back, _ = convert(output, "onnx", folder / "back", repeat)
            yield f"{target} -> onnx", back
        shutil.rmtree(output.parent)


def measure(folder: Path, repeat: int) -> dict[str, object]:
    """Prints the three tables; returns what they show, and the number of failures under `failed`."""
    subprocess.run([sys.executable, str(Path(__file__).with_name("networks.py")), str(folder)], check=True)
    failed = 0

    bare, own = (best([run(c) for _ in range(repeat + 7)]) for c in ([sys.executable, "-c", BARE_CLICK, "--help"], [*NETCONV, "--help"]))
    failed += own.status != 0
    ratio = own.seconds / bare.seconds
    print(f"start-up: bare click {bare.seconds:.3f} s, netconv --help {own.seconds:.3f} s, ratio {ratio:.2f} {own.message if own.status else ''}\n")
    results: dict[str, object] = {"start-up": {"click": bare.seconds, "netconv": own.seconds}}

    for name, title in (("squeezenet", "small"), ("resnet50", "large")):
        source = folder / f"{name}.onnx"
        weights = source.stat().st_size
        cp = copy_seconds(weights, folder, repeat)
        print(f"{title}: {name}, {weights / 1e6:.0f} MB of weights, cp {cp * 1e3:.0f} ms")
        print(f"{'':28} {'seconds':>8} {'x cp above start-up':>20} {'peak MB':>8} {'x weights':>10} {'anonymous MB':>13}")
        for pair, r in pairs(source, folder / name, repeat):
            results[f"{name} {pair}"] = asdict(r) | {"cp": cp, "weights": weights}
            failed += r.status != 0
            if r.status:
                print(f"{pair:28} exit {r.status}: {r.message}")
                continue
            ratio = max(0.0, r.seconds - own.seconds) / cp
            print(f"{pair:28} {r.seconds:8.2f} {ratio:20.1f} {r.resident / 1e6:8.0f} {r.resident / weights:10.2f} {r.anonymous / 1e6:13.0f}", flush=True)
        print()
    return results | {"failed": failed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each conversion (default: 3)")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="netconv-bench-") as folder:
        results = measure(Path(folder), args.repeat)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
