"""Time and memory of the command line, as ratios that mean the same on every machine.

    python tests/benchmarks/bench.py [--only SECTION]... [--pair GLOB] [--repeat N] [--json FILE]
    [--folder DIR] python tests/benchmarks/bench.py --against CHECKOUT [--only small|resnet50]
    [--pair GLOB] [--repeat N] [--json FILE] [--folder DIR]

* startup: `netconv --help` and the help of every command against a bare click application;
* small: a squeezenet-sized network, every pair of formats, each conversion in a fresh process;
* resnet50, bert: 102 MB and 434 MB of weights, every pair; external: 2.2 GB of weights next to the
  model, every pair that can hold them;
* chain: 20,000 layers, every pair; the cost of a layer there against 2,500 layers;
* batch: 500 small models with warm workers against fresh processes;
* verify: two files of a ResNet-50 against running both;
* peers: the times of other tools (the extra `bench`, onnx2coreml, coreai-onnx) for the step that
  they share with netconv;
* quantize: int8 by netconv and by those of ai-edge-quantizer, onnx2tf and NNCF that `--peer-python`
  has;
* large: GPT-2, a decoder of 1.1 billion parameters in three types, ViT-L, whisper-base and the
  denoiser of Stable Diffusion to every format, and to OpenVINO IR, also by ovc (30 GB);
* lite: onnx2tf and tf2onnx on ten small networks, and whose results are right. They demand other
  packages than netconv: `--peer-python` is the interpreter that has them.

With --against another checkout of netconv is measured in turn with this one, with the same Python
and packages: the conversions of `small` and `resnet50`, this checkout's time divided by the other's
for each pair, and the medians of all pairs.

Compared actions run in turn, and the median of the ratios counts. "x cp" is (conversion -
start-up) / `cp` of the weights, where start-up is the same conversion of a network of one layer; "x
cp+sync" the same against `cp` and `sync`, for netconv's results are on the disk when it returns. "x
CPU" is "x cp+sync" in processor time, which other load disturbs less. Anonymous memory leaves out
touched pages of mapped files (Linux only). The networks are made on the spot with seeded random
weights. Exit status 1 when something fails that should not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import lite_peers as lite_judge
from large import NAMES as LARGE_NETWORKS
from large import SIZES as LARGE_SIZES
from lite_peers import LitePeer, input_shape, lite_peers
from measure import NETCONV, Action, Run, best, environment, failure, ratio, rounds, run, shell
from peers import OVC, peers
from quantizers import QUANTIZERS, SAMPLES

ROOT = Path(__file__).resolve().parents[2]
BARE_CLICK = [
    sys.executable,
    "-c",
    "import click\n@click.command()\ndef main():\n    '''Nothing.'''\nmain()",
    "--help",
]
# the argument of -t -> the suffix of the main file
FORMATS = {
    "onnx": ".onnx",
    "coreml": ".mlmodel",
    "openvino": ".xml",
    "openvino+ir=7": ".xml",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
}
LARGE_TARGETS = {**FORMATS, "tflite": ".tflite", "mlprogram": ".mlpackage"}
HEAD = (
    f"{'':32} {'seconds':>8} {'start-up':>9} {'x cp':>6} {'x cp+sync':>10} {'x CPU':>6} "
    f"{'peak MB':>8} {'x weights':>10} {'anonymous MB':>13}"
)


class Bench:
    def __init__(self, folder: Path, repeat: int, wanted: str, peer_python: str) -> None:
        self.folder, self.repeat, self.wanted = folder, repeat, wanted
        self.env, self.peer_python = environment(folder), peer_python
        self.results: dict[str, Any] = {}
        self.failed = 0

    def make(self, *names: str, script: str = "networks.py") -> None:
        subprocess.run(
            [
                sys.executable,
                str(Path(__file__).with_name(script)),
                str(self.folder),
                *names,
            ],
            check=True,
        )

    def convert(
        self,
        source: Path,
        target: str,
        output: Path,
        checkout: Path | None = None,
        options: Sequence[str] = (),
    ) -> Action:
        """An action that writes into an empty folder, with the netconv of a checkout where one is
        given.
        """

        def action() -> Run:
            shutil.rmtree(output.parent, ignore_errors=True)
            output.parent.mkdir(parents=True)
            return run(
                [*NETCONV, "convert", str(source), "-o", str(output), "-t", target, *options],
                self.env,
                checkout,
            )

        return action

    def say(self, section: str, name: str, text: str, **figures: Any) -> None:
        print(f"{name:32} {text}", flush=True)
        self.results.setdefault(section, {})[name] = figures

    def fail(self, section: str, name: str, result: Run, refusal: bool = False) -> None:
        self.failed += not refusal
        self.say(
            section,
            name,
            f"exit {result.status}: {result.message}",
            status=result.status,
            message=result.message,
        )

    # --- sections
    # ---------------------------------------------------------------------------------------------

    def startup(self) -> None:
        listed = run([*NETCONV, "--help"], self.env)
        assert listed.status == 0, listed.message
        from converter.cli.app import COMMANDS  # imports click alone

        for command in ("", *COMMANDS):
            own = [*NETCONV, *([command] if command else []), "--help"]
            found = rounds(
                {
                    "click": lambda: run(BARE_CLICK, self.env),
                    "own": lambda own=own: run(own, self.env),
                },
                self.repeat + 4,
            )  # type: ignore[misc]
            if (bad := failure(found)) is not None:
                self.fail("startup", command, bad)
                continue
            x, cpu = ratio(found, "own", "click"), ratio(found, "own", "click", measure="cpu")
            self.say(
                "startup",
                f"{command} --help".strip(),
                f"{best(found['own']):.3f} s, {x:.2f} x bare click (CPU {cpu:.2f})",
                ratio=x,
                cpu=cpu,
            )

    def nears(self, far: str, formats: dict[str, str]) -> list[str]:
        return [near for near in formats if fnmatchcase(f"{far} -> {near}", self.wanted)]

    def pairs(self, section: str, network: str, formats: dict[str, str], repeat: int) -> None:
        """From ONNX to every format, and from each of these to every format."""
        self.make(network, *([] if (self.folder / "one_layer.onnx").exists() else ["one_layer"]))
        source, tiny = self.folder / f"{network}.onnx", self.folder / "one_layer.onnx"
        weights = sum(p.stat().st_size for p in self.folder.glob(f"{network}.onnx*"))
        print(f"\n{section}: {network}, {weights / 1e6:.0f} MB\n{HEAD}")
        for far in formats:
            nears = self.nears(far, formats)
            if not nears:
                continue
            given, small = (source, tiny)
            if far != "onnx":
                given, small = (
                    self.folder / "from" / p.stem / f"model{formats[far]}" for p in (source, tiny)
                )
                if any(
                    self.convert(p, far, made)().status
                    for p, made in ((source, given), (tiny, small))
                ):
                    self.say(section, far, "cannot hold it: no source")
                    continue
            for near in nears:
                self.pair(section, f"{far} -> {near}", given, small, near, weights, repeat)
        shutil.rmtree(self.folder / "from", ignore_errors=True)
        for made in self.folder.glob(f"{network}.onnx*"):
            made.unlink()

    def against(self, section: str, network: str, other: Path) -> None:
        """The same conversions by this checkout and by another one, in turn."""
        self.make(network)
        print(
            f"\n{section}: {network}, this checkout / {other}\n{'':32} {'seconds':>8} "
            f"{'CPU':>6} {'peak':>6}"
        )
        ratios: dict[str, list[float]] = {"seconds": [], "cpu": [], "resident": []}
        for far in FORMATS:
            nears, given = self.nears(far, FORMATS), self.folder / f"{network}.onnx"
            if nears and far != "onnx":
                given = self.folder / "from" / f"model{FORMATS[far]}"
                if self.convert(self.folder / f"{network}.onnx", far, given, ROOT)().status:
                    self.say(section, far, "cannot hold it: no source")
                    continue
            for near in nears:
                output = self.folder / "to" / f"model{FORMATS[near]}"
                found = rounds(
                    {
                        "own": self.convert(given, near, output, ROOT),
                        "other": self.convert(given, near, output, other),
                    },
                    self.repeat,
                )
                if (bad := failure(found)) is not None:
                    self.fail(section, f"{far} -> {near}", bad, refusal=bad.status == 3)
                    continue
                figures = {
                    measure: ratio(found, "own", "other", measure=measure) for measure in ratios
                }
                for measure, x in figures.items():
                    ratios[measure].append(x)
                self.say(
                    section,
                    f"{far} -> {near}",
                    "{seconds:8.3f} {cpu:6.3f} {resident:6.3f}".format(**figures),
                    **figures,
                )
        if ratios["cpu"]:
            medians = {measure: statistics.median(of) for measure, of in ratios.items()}
            self.say(
                section,
                "median",
                "{seconds:8.3f} {cpu:6.3f} {resident:6.3f}".format(**medians),
                **medians,
            )
        (self.folder / f"{network}.onnx").unlink()

    def pair(
        self,
        section: str,
        name: str,
        source: Path,
        tiny: Path,
        target: str,
        weights: int,
        repeat: int,
    ) -> None:
        suffix, out = FORMATS[target], self.folder / "to"
        biggest = max(
            (
                p
                for p in source.parent.iterdir()
                if p.is_file() and p.name.startswith(source.name.split(".")[0])
            ),
            key=lambda p: p.stat().st_size,
        )
        copy = self.folder / "copy"
        self.convert(
            tiny, target, out / "small" / f"model{suffix}"
        )()  # byte code, and the disk's cache
        found = rounds(
            {
                "small": self.convert(tiny, target, out / "small" / f"model{suffix}"),
                "own": self.convert(source, target, out / "own" / f"model{suffix}"),
                "cp": lambda: run(shell("rm -f {b}; cp {a} {b}", a=biggest, b=copy)),
                "sync": lambda: run(shell("rm -f {b}; cp {a} {b} && sync {b}", a=biggest, b=copy)),
            },
            repeat,
        )
        copy.unlink(missing_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        if (bad := failure(found)) is not None:
            self.fail(section, name, bad, refusal=bad.status == 3)
            return
        figures = {
            "seconds": best(found["own"]),
            "start-up": best(found["small"]),
            "cp": ratio(found, "own", "cp", "small"),
            "cp+sync": ratio(found, "own", "sync", "small"),
            "cpu": ratio(found, "own", "sync", "small", "cpu"),
            "resident": best(found["own"], "resident"),
            "anonymous": max(r.anonymous for r in found["own"]),
            "weights": weights,
        }
        text = "{seconds:8.2f} {start-up:9.2f} {cp:6.1f} {cp+sync:10.1f} {cpu:6.1f}".format(
            **figures
        )
        memory = (
            f"{figures['resident'] / 1e6:8.0f} {figures['resident'] / weights:10.2f} "
            f"{figures['anonymous'] / 1e6:13.0f}"
        )
        self.say(section, name, f"{text} {memory}", **figures)

    def chain(self) -> None:
        """Processor time, because the runs are long; the same conversion of one layer is taken
        off.
        """
        self.make("chain_2500", "chain_20000", "one_layer")
        print(
            f"\nchain: 20,000 layers\n{'':32} {'seconds':>8} {'us/layer':>9} {'at 2,500':>9} "
            f"{'ratio':>6} {'anonymous MB':>13}"
        )
        for far in FORMATS:
            sources = {
                n: self.folder / f"{n}.onnx" for n in ("one_layer", "chain_2500", "chain_20000")
            }
            if not self.nears(far, FORMATS):
                continue
            if far != "onnx":
                made = {n: self.folder / "from" / n / f"model{FORMATS[far]}" for n in sources}
                assert not any(self.convert(sources[n], far, made[n])().status for n in sources)
                sources = made
            for near in self.nears(far, FORMATS):
                out = self.folder / "to" / f"model{FORMATS[near]}"
                found = {
                    n: [
                        self.convert(source, near, out)()
                        for _ in range(1 if n == "chain_20000" else 3)
                    ]
                    for n, source in sources.items()
                }
                if (bad := failure(found)) is not None:
                    self.fail("chain", f"{far} -> {near}", bad)
                    continue
                base, few, many = (best(found[n], "cpu") for n in sources)
                long, short = (many - base) / 20000 * 1e6, (few - base) / 2500 * 1e6
                r = found["chain_20000"][0]
                text = (
                    f"{r.seconds:8.2f} {long:9.0f} {short:9.0f} {long / short:6.2f} "
                    f"{r.anonymous / 1e6:13.0f}"
                )
                self.say(
                    "chain",
                    f"{far} -> {near}",
                    text,
                    layer=long,
                    layer_of_2500=short,
                    ratio=long / short,
                    anonymous=r.anonymous,
                )

    def batch(self) -> None:
        self.make("small_500")
        folder, out = self.folder / "small_500", self.folder / "to"

        def every() -> Run:
            shutil.rmtree(out, ignore_errors=True)
            return run([*NETCONV, "batch", str(folder), "-t", "openvino", "-o", str(out)], self.env)

        one = self.convert(folder / "small_7.onnx", "openvino", self.folder / "one" / "model.xml")
        found = rounds({"batch": every, "one": one}, self.repeat)
        print("\nbatch: 500 models of 14 layers to OpenVINO IR")
        if (bad := failure(found)) is not None:
            return self.fail("batch", "500 models", bad)
        x = ratio(found, "batch", "one")
        text = (
            f"{best(found['batch']):.1f} s, {best(found['batch']) * 2:.0f} ms each; all "
            f"of them like {x:.0f} conversions in fresh processes"
        )
        self.say("batch", "500 models", text, ratio=x, seconds=best(found["batch"]))
        shutil.rmtree(out)

    def verify(self) -> None:
        self.make("resnet50")
        a, b = self.folder / "resnet50.onnx", self.folder / "to" / "model.xml"
        assert self.convert(a, "openvino", b)().status == 0
        found = rounds(
            {
                "verify": lambda: run([*NETCONV, "verify", str(a), str(b)], self.env),
                "runs": lambda: run(
                    shell(
                        "{p} -m converter.cli run {a} && {p} -m converter.cli run {b}",
                        p=Path(sys.executable),
                        a=a,
                        b=b,
                    ),
                    self.env,
                ),
            },
            self.repeat,
        )
        print("\nverify: ResNet-50, ONNX and OpenVINO IR")
        if (bad := failure(found)) is not None:
            return self.fail("verify", "resnet50", bad)
        x, cpu = ratio(found, "verify", "runs"), ratio(found, "verify", "runs", measure="cpu")
        self.say(
            "verify",
            "resnet50",
            f"{best(found['verify']):.2f} s, {x:.2f} x `netconv run` of both files (CPU {cpu:.2f})",
            ratio=x,
            cpu=cpu,
        )

    def quantize(self) -> None:
        self.make("squeezenet")
        source, data = self.folder / "squeezenet.onnx", self.folder / "samples"
        run([sys.executable, "-c", SAMPLES, str(source), str(data)], self.env)
        print("\nquantize: netconv / the target's own quantizer, from a float file of its format")
        for q in QUANTIZERS:
            there = run([self.peer_python, "-c", f"import {q.module}"]).status == 0
            floats = self.folder / q.target / f"model{q.suffix}"
            assert self.convert(source, q.target, floats)().status == 0
            mine, theirs = (self.folder / f"{n}-{q.module}{q.suffix}" for n in ("mine", "theirs"))
            given = str(source if q.source else floats)
            own = [*NETCONV, "quantize", given, str(mine), "--data", str(data), "--force"]
            peer = [self.peer_python, "-c", q.script, given, str(data), str(theirs)]
            actions = {"own": lambda own=own: run(own, self.env)}
            actions |= {"peer": lambda peer=peer: run(peer)} if there else {}
            found = rounds(actions, self.repeat)
            if (bad := failure(found)) is not None:
                self.fail("quantize", q.name, bad)
                continue
            figures = {
                m: ratio(found, "own", "peer", measure=m)
                for m in ("seconds", "cpu", "resident")
                if there
            }
            more = ", ".join(f"{m} {v:.2f}" for m, v in figures.items())
            sides = {"mine": mine, "theirs": theirs} if there else {"mine": mine}
            for side, path in sides.items():
                size = sum(f.stat().st_size for f in self.folder.glob(f"{path.stem}.*"))
                script = [self.peer_python, "-c", q.noise, str(floats), str(data), str(path)]
                noise = subprocess.run(script, capture_output=True, text=True, check=False).stdout
                figures[f"{side} MB"] = size / 1e6
                figures[f"{side} dB"] = float(noise) if noise.strip() else float("nan")
            kept = ", ".join(f"{n} {figures[n]:.2f}" for n in figures if " " in n)
            text = f"{best(found['own']):.2f} s   {more or q.name + ' is not installed'}   {kept}"
            self.say("quantize", q.name, text, **figures)

    def peers(self) -> None:
        self.make("resnet50", "bert_base")
        print("\npeers: netconv / peer, for the step that both do")
        for peer in peers(self.folder, self.peer_python):
            if peer.missing:
                self.say("peers", peer.name, peer.missing)
                continue
            prepared = self.convert(
                self.folder / "resnet50.onnx", "coreml", self.folder / "from" / "resnet50.mlmodel"
            )
            if not (self.folder / "from" / "resnet50.mlmodel").exists():
                assert prepared().status == 0
            own = self.convert(peer.source, peer.target, self.folder / "to" / peer.output)
            found = rounds(
                {"own": own, "peer": lambda peer=peer: run(peer.command, self.env)}, self.repeat
            )  # type: ignore[misc]
            if (bad := failure(found)) is not None:
                self.say("peers", peer.name, f"exit {bad.status}: {bad.message}", status=bad.status)
                continue
            names = {"seconds": "time", "cpu": "CPU", "resident": "peak", "anonymous": "anonymous"}
            figures = {m: ratio(found, "own", "peer", measure=m) for m in names}
            text = ", ".join(f"{name} {figures[m]:.2f}" for m, name in names.items())
            self.say(
                "peers",
                peer.name,
                f"{text}   ({best(found['own']):.2f} s / {best(found['peer']):.2f} s; {peer.step})",
                **figures,
            )

    def large(self) -> None:
        print(f"\nlarge\n{'':32} {'seconds':>8} {'CPU':>7} {'peak MB':>8} {'x weights':>10}")
        for network in LARGE_NETWORKS:
            self.make(network, script="large.py")
            weights = (self.folder / f"{network}.onnx.data").stat().st_size
            for target in (t for t in LARGE_TARGETS if fnmatchcase(f"onnx -> {t}", self.wanted)):
                self.large_pair(network, target, weights)
            for made in self.folder.glob(f"{network}.onnx*"):
                made.unlink()
        shutil.rmtree(self.folder / "to", ignore_errors=True)

    def large_pair(self, network: str, target: str, weights: int) -> None:
        """Targets without dynamic shapes get those of one step; OpenVINO IR is written by ovc,
        too.
        """
        source, name = self.folder / f"{network}.onnx", f"{network} -> {target}"
        output = self.folder / "to" / f"model{LARGE_TARGETS[target]}"
        open_sizes = target in ("onnx", "openvino")
        sizes = {} if open_sizes else LARGE_SIZES.get(network, {})
        given = [part for n, s in sizes.items() for part in ("--inputs", f"{n}:{s}")]
        actions = {"own": self.convert(source, target, output, options=given)}
        if target == "openvino":
            theirs = [sys.executable, "-c", OVC, str(source), str(self.folder / "ovc.xml")]
            actions["ovc"] = lambda: run(theirs, self.env)
        found = rounds(actions, self.repeat if len(actions) > 1 else 1)
        if (bad := failure(found)) is not None:
            return self.fail("large", name, bad, refusal=bad.status == 3)
        size = sum(p.stat().st_size for p in output.parent.rglob("*") if p.is_file())
        figures = {m: best(found["own"], m) for m in ("seconds", "cpu", "resident")}
        figures |= {"weights": size / weights}
        text = f"{{seconds:8.2f}} {{cpu:7.2f}} {figures['resident'] / 1e6:8.0f} {{weights:10.2f}}"
        text = text.format(**figures)
        if "ovc" in found:
            beside = {m: ratio(found, "own", "ovc", measure=m) for m in figures if m != "weights"}
            text += "   / ovc: time {seconds:.2f}, CPU {cpu:.2f}, peak {resident:.2f}".format(
                **beside
            )
            figures |= {f"{m}/ovc": x for m, x in beside.items()}
        return self.say("large", name, text, **figures)

    def lite(self) -> None:
        self.make("kinds")
        folder = self.folder / "kinds"
        for source in folder.glob("*.onnx"):
            self.convert(source, "tflite", self.folder / "to" / "model.tflite")()
            shutil.copy(self.folder / "to" / "model.tflite", source.with_suffix(".tflite"))
        print("\nlite: netconv / peer, and the largest relative difference of both results")
        for peer in lite_peers(folder, self.peer_python):
            if run([self.peer_python, "-c", f"import {peer.tool}"], self.env).status:
                self.say("lite", peer.tool, f"not installed in {self.peer_python}")
                continue
            self.lite_peer(peer, folder)

    def lite_peer(self, peer: LitePeer, folder: Path) -> None:
        """One network by both tools, in turn; a peer that fails is said, and no fault of ours."""
        made = self.folder / "to" / f"model.{peer.target}"
        own = self.convert(peer.source, peer.target, made)
        theirs = rounds({"peer": lambda: run(peer.command, self.env, folder)}, 1)
        name, failed = f"{peer.tool} {peer.network}", failure(theirs)
        repeat = 1 if failed else self.repeat
        actions = {"own": own}
        if failed is None:
            actions["peer"] = lambda: run(peer.command, self.env, folder)
        found = rounds(actions, repeat)
        if (bad := failure(found)) is not None:
            return self.fail("lite", name, bad)
        sizes = ",".join(map(str, input_shape(folder / f"{peer.network}.onnx")))
        judged = [
            run([sys.executable, lite_judge.__file__, str(peer.source), str(p), sizes], self.env)
            for p in (made, *(() if failed else (peer.output,)))
        ]
        self.failed += judged[0].status != 0
        figures: dict[str, Any] = {"own": judged[0].message, "right": not judged[0].status}
        text = f"own {judged[0].message}"
        if failed is not None:
            return self.say("lite", name, f"{text}, peer fails: {failed.message[:60]}", **figures)
        for measure in ("seconds", "cpu", "resident"):
            figures[measure] = ratio(found, "own", "peer", measure=measure)
        figures["size"] = made.stat().st_size / peer.output.stat().st_size
        figures |= {"peer": judged[1].message, "peer_right": not judged[1].status}
        text += ", peer {peer}   time {seconds:.2f}, CPU {cpu:.2f}, peak {resident:.2f}".format(
            **figures
        )
        self.say("lite", name, f"{text}, size {figures['size']:.2f}", **figures)
        return None


def sections(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    without_coreml = {
        k: v for k, v in FORMATS.items() if k != "coreml"
    }  # protobuf ends at 2 GiB, which netconv says
    yield "startup", bench.startup
    yield "small", lambda: bench.pairs("small", "squeezenet", FORMATS, bench.repeat)
    yield "resnet50", lambda: bench.pairs("resnet50", "resnet50", FORMATS, bench.repeat)
    yield "bert", lambda: bench.pairs("bert", "bert_base", FORMATS, max(1, bench.repeat // 2))
    yield "external", lambda: bench.pairs("external", "external", without_coreml, 1)
    yield "chain", bench.chain
    yield "batch", bench.batch
    yield "verify", bench.verify
    yield "peers", bench.peers
    yield "quantize", bench.quantize
    yield "large", bench.large
    yield "lite", bench.lite


def comparisons(bench: Bench, other: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "small", lambda: bench.against("small", "squeezenet", other)
    yield "resnet50", lambda: bench.against("resnet50", "resnet50", other)


def checkout(text: str) -> Path:
    path = Path(text).absolute()
    if not (path / "converter" / "cli" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no checkout of netconv")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against",
        type=checkout,
        metavar="CHECKOUT",
        help="compare with the netconv of another checkout",
    )
    parser.add_argument(
        "--only", action="append", metavar="SECTION", help="of the list above; repeatable"
    )
    parser.add_argument(
        "--pair", default="*", metavar="GLOB", help="pairs of formats to measure: 'onnx -> *'"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="rounds of each comparison (default: 3)"
    )
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the temporary folder is made: the disk that is measured (10 GB)",
    )
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        metavar="PYTHON",
        help="the interpreter that has the other tools",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="netconv-bench-", dir=args.folder) as folder:
        bench = Bench(Path(folder), args.repeat, args.pair, args.peer_python)
        known = dict(comparisons(bench, args.against) if args.against else sections(bench))
        if unknown := set(args.only or ()) - known.keys():
            parser.error(f"no section {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        for name, section in known.items():
            if not args.only or name in args.only:
                section()
    if args.json:
        args.json.write_text(json.dumps(bench.results, indent=1) + "\n")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
