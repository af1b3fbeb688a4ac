"""Many damaged files and many random networks, and a table of the results: `make fuzz`.

The same seed gives the same files. Each damaged file is converted, or given to a command, in turn;
each is judged in a process with limits on time and memory (hostile/supervise.py). Exit code 1 and
one line for each kind of fault when there is any; --keep holds one file of each.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import mutations
import random_graphs
import random_variants
from converter.engines.file import available
from hostile import structure, supervise
from hostile.judge import ACTIONS

CHUNK = 250
SUFFIXES = (".onnx", ".mlmodel", ".xml", ".txt", ".nnapi.json", ".nnapi", ".tflite")
Answers = tuple[str, collections.Counter[str], dict[str, str]]
Files = dict[str, bytes]


def damaged(form: str, seed: int, count: int, actions: list[str], keep: Path | None) -> Answers:
    """`count` damaged files of one form: half in their bytes, half in their structure. Every second
    chunk damages a random network.
    """
    with tempfile.TemporaryDirectory() as whole:
        path = mutations.seeds(Path(whole), _network(seed), [form]).get(form)
        if path is None:
            shutil.rmtree(whole)
            path = mutations.seeds(Path(whole), forms=[form])[form]
        return _judge(path, f"damaged {form}", seed, count, actions, keep)


def _network(seed: int) -> mutations.Model | None:
    return random_graphs.network(f"seed {seed}", 1 + seed % 8) if seed % 2 else None


def of_file(path: Path, seed: int, count: int, actions: list[str], keep: Path | None) -> Answers:
    """`count` damaged copies of a given file."""
    return _judge(
        path,
        f"damaged {path.suffix}",
        seed,
        count,
        actions,
        keep,
        f"{path.parent.name}/{path.name}",
    )


def _mutants(path: Path, count: int, seed: int) -> Iterator[tuple[str, Files]]:
    originals, file = mutations.contents(path), mutations.model_file(path)
    main = file.relative_to(path.parent).as_posix()
    sides = {n: structure.beside(d) for n, d in originals.items() if n != main}
    given = 0
    for name, found in (
        (main, structure.sample(file, count // 2, seed)),
        *((n, _some(f, count // 8, seed)) for n, f in sides.items()),
    ):
        for description, make in found:
            given += 1
            yield f"{name}: {description}", {**originals, name: make()}
    for n, files in enumerate(mutations.mutants(path, count - given, seed)):
        yield f"bytes {n}", files


def _some(changes: list[structure.Change], count: int, seed: int) -> list[structure.Change]:
    return random.Random(seed).sample(changes, min(count, len(changes)))


def _judge(
    path: Path,
    title: str,
    seed: int,
    count: int,
    actions: list[str],
    keep: Path | None,
    source: str = "",
) -> Answers:
    answers, faults = collections.Counter[str](), dict[str, str]()
    rng = random.Random(f"actions {path.name} {seed}")
    with tempfile.TemporaryDirectory() as broken:
        drawn = [
            (description, files, rng.choice(actions))
            for description, files in _mutants(path, count, seed)
        ]
        cases = [
            lambda f=files, a=action: _one(f, a, Path(broken), path.name)
            for _, files, action in drawn
        ]
        for number, answer, detail in supervise.supervised(cases):
            description, files, action = drawn[number]
            answers[answer.partition(":")[0]] += 1
            if answer == "fault" or answer.startswith("lenient"):
                kind = (
                    f"{title.split()[1]} {action if answer != 'fault' else ''} "
                    f"{(detail or answer).partition(': ')[0 if answer == 'fault' else 2][:120]}"
                )
                if kind not in faults:
                    faults[kind] = (
                        f"{source or title} {action}, seed {seed}, number {number} "
                        f"({description}): {detail}"
                    )
                    _keep(keep, files, len(faults), f"{title} {seed} {number}", kind, faults[kind])
    return title, answers, faults


def _one(files: Files, action: str, folder: Path, name: str) -> str:
    for p in folder.iterdir():
        shutil.rmtree(p) if p.is_dir() else p.unlink()
    mutations.lay_out(files, folder)
    return ACTIONS[action](folder / name)


def _keep(keep: Path | None, files: Files, number: int, name: str, kind: str, text: str) -> None:
    if keep is None:
        return
    folder = keep / f"{name.replace(' ', '_').replace('/', '_')}"
    folder.mkdir(parents=True, exist_ok=True)
    mutations.lay_out(files, folder)
    (folder / "why.txt").write_text(f"{kind}\n{text}\n", encoding="utf-8", errors="replace")


def networks(target: str, first: int, count: int) -> Answers:
    """Networks number `first` and following, through one format and back."""
    answers, faults = collections.Counter[str](), dict[str, str]()
    for i in range(first, first + count):
        drawn = random_variants.variant(f"graph {i}", 1 + i % 8)
        reference = random_graphs.expected(drawn.model, drawn.feeds) if drawn is not None else None
        if drawn is None or reference is None:
            answers["not executable"] += 1
            continue
        place = f"variant('graph {i}', {1 + i % 8}) -> {target}"
        model = drawn.model if target == "onnx" else random_graphs.canonical(drawn.model)
        answer = _guarded(
            lambda m=model, r=reference, f=drawn.feeds: random_graphs.outcome(m, r, target, f),
            place,
            faults,
        )
        answers[answer if answer in ("same", "fault") else "refused"] += 1
    return f"network -> {target}", answers, faults


def _guarded(run: Callable[[], str], place: str, faults: dict[str, str]) -> str:
    try:
        return run()
    except Exception as e:
        frames = [
            f"{Path(f.filename).name}:{f.lineno}"
            for f in traceback.extract_tb(e.__traceback__)[-2:]
        ]
        faults.setdefault(
            f"{type(e).__name__} {' '.join(frames)}", f"{place}: {' '.join(str(e).split())[:200]}"
        )
        return "fault"


def _tasks(
    given: argparse.Namespace, pool: concurrent.futures.Executor
) -> Iterator[concurrent.futures.Future[Answers]]:
    actions = (
        [a for a in ACTIONS if any(a.startswith(w) for w in given.actions.split(","))]
        if given.actions
        else [a for a in ACTIONS if a != "outside"]
    )
    start, keep = given.seed * 1_000_000, given.keep
    if given.files:
        found = [
            p
            for p in sorted(given.files.rglob("*"))
            if p.name.endswith(SUFFIXES) and p.stat().st_size < 60_000 and p.name != "case.json"
        ]
        found = random.Random(given.seed).sample(found, len(found))
        each = max(4, -(-given.mutants // max(1, len(found))))
        yield from (
            pool.submit(of_file, p, start + i, each, actions, keep)
            for i, p in enumerate(found[: -(-given.mutants // each)])
        )
        return
    forms = [f for f in mutations.FORMS if f != "nnapi+c"]
    forms += [f for f in mutations.APART if available(f)]
    each = -(-given.mutants // len(forms))
    for i in range(0, each, CHUNK):
        yield from (
            pool.submit(damaged, form, start + i // CHUNK, min(CHUNK, each - i), actions, keep)
            for form in forms
        )
    for name in mutations.SUFFIXES:
        yield from (
            pool.submit(networks, name, start + i, min(CHUNK, given.graphs - i))
            for i in range(0, given.graphs, CHUNK)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1200, help="damaged files over all forms")
    parser.add_argument(
        "--graphs", type=int, default=24, help="random networks, each through every format"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--files", type=Path, help="damage the model files below this folder instead"
    )
    parser.add_argument(
        "--actions",
        default="",
        help="only the actions that begin with one of these, separated by commas",
    )
    parser.add_argument("--keep", type=Path, help="folder for one file of each kind of fault")
    given = parser.parse_args()
    totals: dict[str, collections.Counter[str]] = {}
    faults: dict[str, str] = {}
    with concurrent.futures.ProcessPoolExecutor(
        given.jobs, mp_context=multiprocessing.get_context("fork")
    ) as pool:
        try:
            for task in concurrent.futures.as_completed(list(_tasks(given, pool))):
                title, answers, found = task.result()
                totals.setdefault(title, collections.Counter()).update(answers)
                for kind in found.keys() - faults.keys():
                    print(f"fault: {kind}\n    {found[kind]}", flush=True)
                faults.update(found)
        except KeyboardInterrupt:  # the results so far are printed
            pool.shutdown(wait=False, cancel_futures=True)
    for title in sorted(totals):
        print(f"{title:26} " + "  ".join(f"{k} {n}" for k, n in sorted(totals[title].items())))
    print(f"{sum(sum(c.values()) for c in totals.values())} cases, {len(faults)} kinds of fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
