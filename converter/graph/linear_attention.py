"""Linear attention: a state for each head that every token changes.

B batch, S tokens, N heads, K size of a key, V size of a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.value import Value

_RULES = ("linear", "gated", "delta", "gated_delta")


def recurrence(
    b: Builder,
    rule: str,
    state: Value,
    q: Value,
    k: Value,
    v: Value,
    decay: Value | None,
    beta: Value | None,
) -> tuple[Value, Value]:
    """Return the outputs [B,N,S,V] and the last state [B,N,K,V] for q, k [B,N,S,K], v [B,N,S,V],
    decay [B,N,S,K or 1] as a logarithm and beta [B,N,S,1], all of as many heads.
    """
    if rule not in _RULES:
        raise MappingError(f"the update rule {rule!r} is not known", "R110")
    given = [q, k, v, *([b.Exp(decay)] if decay is not None else []), *([beta] if beta else [])]
    if (decay is None) == ("gated" in rule) or (beta is None) == ("delta" in rule):
        raise MappingError(f"the update rule {rule!r} does not fit the operands", "R105")
    if q.shape is not None and q.shape[2] == 1:
        return _step(b, rule, state, given)
    steps = [b.Unsqueeze(b.Transpose(x, perm=[2, 0, 1, 3]), [3]) for x in given]  # [S,B,N,1,..]
    count = b.Squeeze(b.Shape(steps[0], start=0, end=1))
    with b.loop(count, state) as body:
        parts = [body.Gather(x, body.iteration, axis=0) for x in steps]
        y, after = _step(body, rule, body.states[0], parts)
    last, outputs = body.end(after, y)  # [S,B,N,1,V]
    return b.Transpose(b.Squeeze(outputs, [3]), perm=[1, 2, 0, 3]), last


def _step(b: Builder, rule: str, state: Value, given: Sequence[Value]) -> tuple[Value, Value]:
    """Process one token: rows [B,N,1,..] and the state [B,N,K,V] give its output and the next
    state.
    """
    q, k, v, *gates = given
    with b:
        if "gated" in rule:
            state = state * b.Transpose(gates.pop(0), perm=[0, 1, 3, 2])
        if "delta" in rule:
            v = (v - k @ state) * gates.pop(0)
        state = state + b.Transpose(k, perm=[0, 1, 3, 2]) @ v
        return q @ state, state
