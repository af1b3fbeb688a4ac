"""Many damaged files and many random networks, and a table of what came of them: `make fuzz`.

The same seed gives the same files. Exit code 1 and one line for each kind of fault when there is any.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import mutations
import random_graphs
import random_variants

CHUNK = 250
Answers = tuple[str, collections.Counter[str], dict[str, str]]


def damaged(source: str, seed: int, count: int) -> Answers:
    """`count` damaged files of one format, converted to the others in turn."""
    others = [t for t in mutations.SUFFIXES if t != source]
    answers, faults = collections.Counter[str](), dict[str, str]()
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as broken:
        path = mutations.seeds(Path(whole))[source]
        for i, mutant in enumerate(mutations.mutants(path, Path(broken), count, seed)):
            target = others[i % len(others)]
            _judge(lambda m=mutant, t=target: mutations.outcome(m, t), f"damaged {source} -> {target}, seed {seed}, number {i}", answers, faults)
    return f"damaged {source}", answers, faults


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
        answer = _judge(lambda m=model, r=reference, f=drawn.feeds: random_graphs.outcome(m, r, target, f), place, answers, faults)
        if answer not in ("same", "fault"):
            answers["refused"] += 1
    return f"network -> {target}", answers, faults


def _judge(run: Callable[[], str], place: str, answers: collections.Counter[str], faults: dict[str, str]) -> str:
    try:
        answer = run()
    except Exception as e:
        frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(e.__traceback__)[-2:]]
        faults.setdefault(f"{type(e).__name__} {' '.join(frames)}", f"{place}: {' '.join(str(e).split())[:200]}")
        answer = "fault"
    answers[answer] += 1
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1200, help="damaged files over all formats")
    parser.add_argument("--graphs", type=int, default=24, help="random networks, each through every format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    totals: dict[str, collections.Counter[str]] = {}
    faults: dict[str, str] = {}
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        tasks = []
        for name in mutations.SUFFIXES:
            each = -(-given.mutants // len(mutations.SUFFIXES))
            tasks += [pool.submit(damaged, name, given.seed * 1_000_000 + i, min(CHUNK, each - i)) for i in range(0, each, CHUNK)]
            start = given.seed * 1_000_000
            tasks += [pool.submit(networks, name, start + i, min(CHUNK, given.graphs - i)) for i in range(0, given.graphs, CHUNK)]
        for task in concurrent.futures.as_completed(tasks):
            title, answers, found = task.result()
            totals.setdefault(title, collections.Counter()).update(answers)
            faults.update(found)
    for title in sorted(totals):
        print(f"{title:26} " + "  ".join(f"{k} {n}" for k, n in sorted(totals[title].items())))
    for kind, place in faults.items():
        print(f"fault: {kind}\n    {place}")
    print(f"{len(faults)} kinds of fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
