"""Execution times of a network in onnxruntime, by layer of its file."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from converter.commands.verify.feeds import Feed
from converter.graph.network import Network
from converter.graph.walk import all_nodes
from converter.io import progress

SHOWN = 20  # lines, without -v
_MARK = re.compile(r"@(\d+)@")


@dataclass(frozen=True)
class Spent:
    """The time of one kernel in milliseconds per run: `layer` and `operator` are those of the
    graph's node, `kernel` is the one that onnxruntime runs for it and the nodes fused with it.
    """

    layer: str
    operator: str
    kernel: str
    milliseconds: float


def profile(model: Network, feeds: Sequence[Feed], runs: int = 10) -> list[Spent]:
    """Return the kernels of a network, the slowest first: the median time of a call, times the
    calls of one run, over `runs` runs and one more on each feed.
    """
    from converter.engines import only_running, onnxruntime

    marked = replace(model, ir=model.ir.clone())
    nodes = list(all_nodes(marked.ir.graph))
    names = [str(n.outputs[0].name) for n in nodes]
    for number, node in enumerate(nodes):
        # names of kernels include the names of their nodes, or of the results
        node.name = f"@{number}@"
        for place, value in enumerate(node.outputs):
            if value.name and not value.is_graph_output():
                value.name = f"@{number}@{place}"
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        with only_running():
            prepared = onnxruntime.prepare(marked, profile=str(Path(folder) / "profile"))
        with progress.step("measuring"):
            for feed in feeds:
                for _ in range(runs + 1):
                    prepared.run(feed.arrays)
        events = json.loads(
            Path(prepared.inner.session.end_profiling()).read_text(encoding="utf-8")
        )
    found = []
    for (name, kernel), times in _kernels(events).items():
        mark = _MARK.search(name)
        layer, operator = "", ""
        if mark:
            node = nodes[int(mark[1])]
            layer = node.metadata_props.get("netconv.layer") or names[int(mark[1])]
            operator = node.op_type
        calls = len(times) / (len(feeds) * (runs + 1))
        found.append(Spent(layer, operator, kernel, median(times) * calls / 1000))
    return sorted(found, key=lambda s: -s.milliseconds)


def _kernels(events: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[int]]:
    """Return the microseconds of every call of each kernel, by the names of the node and of the
    kernel.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (event["name"].removesuffix("_kernel_time"), event["args"]["op_name"])
            found.setdefault(key, []).append(int(event["dur"]))
    return found


def lines(found: Sequence[Spent], shown: int = SHOWN) -> Iterator[str]:
    """Yield the lines of a profile: the total, the slowest kernels, and the sum of the rest."""
    total = sum(s.milliseconds for s in found)
    yield f"{total:.3f} ms per run in {len(found)} kernels of onnxruntime"
    for s in found[:shown]:
        share = s.milliseconds / total if total else 0
        what = s.kernel if s.kernel == s.operator else f"{s.operator or '-'} as {s.kernel}"
        yield f"{s.milliseconds:10.4f} ms {share:6.1%}  {what:28} {s.layer}".rstrip()
    if len(found) > shown:
        rest = sum(s.milliseconds for s in found[shown:])
        yield (
            f"{rest:10.4f} ms {rest / total if total else 0:6.1%}  "
            f"{len(found) - shown} more (show with -v)"
        )
