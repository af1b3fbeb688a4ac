"""Change the sizes of inputs that a file fixes, and with them the constants that came from the old
sizes.

before:  main(x[1,3,8,8]) { y[1,192] = Reshape(x, [1, 192]) }
after:   main(x[5,3,8,8]) { y[5,192] = Reshape(x, [5, 192]) }

The shapes of all values are inferred twice, with the old sizes and with the new ones. A constant
that no longer fits is computed anew where the operators show the size that it follows: the target
of a Reshape from the order of elements (`regroup.py`), the end of a Slice that was the end of the
axis, sizes of a Resize that were a whole multiple, a constant that meets data of another size
(`stretch.py`). Where several values are possible, each is tried, and one is taken if the layers
after it contradict the others. Everything else is refused with its layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, UsageError, Where
from converter.graph.names import layer_name
from converter.passes.sizes.repairs import RULES
from converter.passes.sizes.walk import SEVERAL, Refused, Undecided, Walk

MOST_TRIED = 24  # assignments of sizes of which several are possible


def change_sizes(
    model: ir.Model,
    old: Mapping[str, Sequence[int]],
    new: Mapping[str, Sequence[int]],
    by_declared: bool = False,
) -> list[Diagnostic]:
    """Change the shapes of inputs, by their public names, from `old` to `new`, in place; return a
    note that lists the layers whose constants were computed anew.

    `by_declared`: the graph was read with the old sizes, so that padding may depend on them.

    Raise UsageError U501 with the layer whose constant cannot be computed anew.
    """

    def attempt(graph: ir.Model, choices: tuple[int, ...]) -> Walk:
        return Walk(graph, old, new, by_declared, choices, RULES)

    tried = 0
    possible: list[tuple[int, ...]] = []
    queue: list[tuple[int, ...]] = [()]
    refusal: Refused | None = None
    undecided: ir.Node | None = None  # the first layer for which several sizes are possible
    while queue:
        choices = queue.pop(0)
        tried += 1
        try:
            attempt(model.clone(), choices).run()
            possible.append(choices)
        except Undecided as e:
            undecided = undecided or e.node
            if tried + len(queue) + e.count > MOST_TRIED:
                raise _error(e.node, SEVERAL) from None
            queue += [(*choices, k) for k in range(e.count)]
        except Refused as e:
            refusal = refusal or e
        if len(possible) > 1:
            raise _error(undecided, SEVERAL)
    if not possible:
        assert refusal is not None
        raise _error(refusal.node, refusal.reason)
    walk = attempt(model, possible[0])
    walk.run()
    return walk.notes()


def _error(node: ir.Node | None, reason: str) -> UsageError:
    where = Where() if node is None else Where(layer=layer_name(node), kind=node.op_type)
    message = f"the network does not accept these shapes: {reason}"
    help = "export the network with the new size, or with a dynamic one"
    return UsageError(Diagnostic("U501", message, where=where, help=help))
