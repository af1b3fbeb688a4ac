"""Numbers: two models on the same inputs, compared tensor by tensor.

feeds.py     what to run on                      align.py    which tensor is which
sizes.py     of inputs that leave them open      arguments.py inputs that say where or how much
numbers.py   tensors found by their numbers      spelling.py what a node says, spelled out
program.py   a model cut into pieces             noise.py    what rounding alone may do
compare.py   two arrays                          isolate.py  own error versus inherited error
cause.py     what differs in a wrong piece       judge.py    a user's tolerances, and the verdict
floor.py     the noise of a whole network        result.py   what was found, as data
native.py    a file in its own engine            stored.py   a stored comparison read again
plan.py      what a comparison shall do          outputs.py  both models run as a whole
layers.py    both models layer by layer          text.py     a comparison for people
check.py     one comparison from start to end
truth.py     pieces in doubles                 compressed.py weights computed from stored ones
evidence.py  the wrong tensor and the graph around it, for pages
single_change.py  one attribute or weight whose change gives the candidate's numbers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from converter.commands.options.verify import Verify
from converter.commands.verify.result import Result

if TYPE_CHECKING:
    from converter.graph.network import Network


def compare(reference: Network, candidate: Network, options: Verify) -> Result:
    """Runs both models on the same inputs and compares what they compute; see converter.verify."""
    from converter.commands.verify.check import check
    from converter.commands.verify.plan import Plan
    from converter.engines import only_running

    with only_running():
        return check(Plan.of(reference, candidate, options))


def verify(reference: Network, candidate: Network, *data: Any, **options: Any) -> Result:
    """The same with the fields of Verify by name; their files run only where `native` says so."""
    return compare(reference, candidate, Verify(*data, **{"native": "off", **options}))


__all__ = ["Result", "compare", "verify"]
