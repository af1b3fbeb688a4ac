"""Numbers: two models on the same inputs, compared tensor by tensor.

feeds.py     what to run on                      align.py    which tensor is which
sizes.py     of inputs that leave them open      arguments.py inputs that say where or how much
numbers.py   tensors found by their numbers      spelling.py what a node says, spelled out
program.py   a model cut into pieces             noise.py    what rounding alone may do
compare.py   two arrays                          isolate.py  own error versus inherited error
cause.py     what differs in a wrong piece       judge.py    a user's tolerances, and the verdict
floor.py     the noise of a whole network        result.py   what was found, as data
native.py    a file in its own engine            stored.py   a stored comparison read again
check.py     one comparison from start to end    text.py     a comparison for people
truth.py     pieces in doubles                 compressed.py weights computed from stored ones
evidence.py  the wrong tensor and the graph around it, for pages
single_change.py  one attribute or weight whose change gives the candidate's numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converter.commands.verify.result import Result

if TYPE_CHECKING:
    from converter.commands.verify.judge import Given
    from converter.graph.network import Network


def verify(
    reference: Network,
    candidate: Network,
    data: Any = None,
    *,
    tensors: str | Iterable[str] = "outputs",
    rtol: Given = None,
    atol: Given = None,
    metrics: Iterable[str] = (),
    mode: str = "isolated",
    seed: int = 0,
    seeds: int = 1,
    map: Mapping[str, str] | None = None,
    engine: str = "onnxruntime",
    fail_fast: bool = False,
    keep_tensors: Any = None,
    names: tuple[str, str] = ("reference", "candidate"),
    native: str = "off",
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> Result:
    """Runs both models on the same inputs and compares what they compute.

    `data` is described at converter.commands.verify.feeds.feeds_for. `tensors`: "outputs" (a
    difference is still traced to its layer), "all", or globs of tensor names. A difference is
    judged against the measured rounding noise of the reference unless `rtol` or `atol`
    ("[GLOB:]NUMBER") say otherwise; `metrics` ("cos=0.999") must hold besides. `mode` "chain" does
    not isolate layers. Random inputs are made for each of `seeds` seeds from `seed` on. `map` names
    tensors of the candidate by those of the reference. `engine` runs the candidate's outputs.

    `inputs` are shapes of the reference's inputs by name, for those whose sizes are open; sizes
    that one of the models has are those of both. Inputs that are drawn and that the reference does
    not take are left out, with a note.

    `native` says whether the files that the models were read from run too, each in the engine it is
    written for (onnxruntime, OpenVINO, LiteRT), and must give what was read: "auto" where that is
    installed, "on" (UsageError U502 where it is not), or "off". A model without a file has no such
    run; a model that was changed after reading is no longer what its file says: set its `source` to
    None, or "off".

    NothingComparedError when nothing could be compared, be it that an engine cannot run a model
    (N403).
    """
    from converter.commands.verify.check import Check, Request
    from converter.engines import only_running

    chosen = (tensors,) if isinstance(tensors, str) else tuple(tensors)
    request = Request(
        data,
        chosen,
        rtol,
        atol,
        tuple(metrics),
        mode,
        seed,
        seeds,
        dict(map or {}),
        engine,
        fail_fast,
        keep_tensors,
        names,
        native,
        inputs,
    )
    with only_running():
        return Check(reference, candidate, request).run()


__all__ = ["Result", "verify"]
