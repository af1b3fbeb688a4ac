"""Unusual but valid ONNX graphs: written files are right in their engine, or refused.

`make fuzz` judges 2,500 of them (tests/unusual_graphs.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from converter.engines import file
from support import run_python
from unusual_graphs import ENGINES, MAKERS, TARGETS, differences, draw

JUDGE = """if True:
    import json, os, sys
    os.fsync = lambda file: None  # nothing here loses its power
    sys.path.insert(0, sys.argv[1])
    from unusual_graphs import judge_all
    verdicts, faults = judge_all(int(sys.argv[2]), 7, [sys.argv[3]])
    print(json.dumps({"faults": faults, "right": verdicts[sys.argv[3]]["right"]}))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS)
def test_written_files_are_right_in_their_engine(target: str, count: int) -> None:
    engine = ENGINES[target.partition("+")[0]]
    if not file.available(engine):
        pytest.skip(f"{engine} is not installed")
    # in a process of its own: engines that another test has started do not survive a fork
    here = str(Path(__file__).parent)
    said = json.loads(run_python(JUDGE, here, str(count), target))
    assert said["faults"] == []
    assert said["right"] > count // 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_each_operator_is_drawn(kind: str) -> None:
    assert any(draw(f"drawn {n}", kind) for n in range(30))


def test_the_same_seed_draws_the_same_graph() -> None:
    first, second = draw("1 2"), draw("1 2")
    assert first is not None and second is not None
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert all(np.array_equal(first.feeds[n], second.feeds[n]) for n in first.feeds)


def test_differences_are_noticed() -> None:
    x = np.array([1.0, np.nan, np.inf])
    assert differences(x, x) == ""
    assert differences(x, x[:2]) and differences(x, x[::-1]) and differences(x, x * 1.01)
