"""Numbers: two models on the same inputs, compared tensor by tensor.

feeds.py     inputs for the models               align.py    pairs of corresponding tensors
sizes.py     sizes for dynamic inputs            arguments.py inputs that are indices or sizes
numbers.py   tensors matched by their numbers    spelling.py nodes with explicit defaults
program.py   a model cut into pieces             noise.py    the effect of rounding alone
compare.py   two arrays                          isolate.py  own error versus inherited error
cause.py     differences in a wrong piece        judge.py    a user's tolerances, and the verdict
floor.py     the noise of a whole network        result.py   the findings, as data
native.py    a file in its own engine            stored.py   a stored comparison read again
plan.py      the plan of one comparison          outputs.py  both models run as a whole
layers.py    both models layer by layer          text.py     a comparison as text
check.py     one comparison from start to end    rows.py      valid rows of a fixed number
truth.py     pieces in doubles                   compressed.py weights that are stored compressed
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
    """Run both models on the same inputs and compare their results; see converter.verify."""
    from converter.commands.verify.check import check
    from converter.commands.verify.plan import Plan
    from converter.commands.verify.sizes import explaining
    from converter.engines import only_running

    with explaining(reference, options.inputs), only_running():
        return check(Plan.of(reference, candidate, options))


def verify(reference: Network, candidate: Network, *data: Any, **options: Any) -> Result:
    """Compare two models, with the fields of Verify as arguments; files run in their own engines
    only if `native` is set.
    """
    return compare(reference, candidate, Verify(*data, **{"native": "off", **options}))


__all__ = ["Result", "compare", "verify"]
