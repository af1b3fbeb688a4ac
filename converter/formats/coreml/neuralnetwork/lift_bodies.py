"""Control flow: branch, loop, loopBreak and loopContinue -> If and Loop.

Core ML's bodies share the names of the network around them and write into it; ONNX's return values.
So the names that a body writes and that are used afterwards become results of an If, or values that
a Loop carries.

A branch that contains a loopBreak or loopContinue absorbs the layers that follow it in the body:

branch(c) { break } else { }; rest      ->      If(c) { keep = false } else { rest; keep = true }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork.network import (
    Env,
    NetworkLift,
    bodies,
    kind_of,
    with_bodies,
    writes,
)
from converter.formats.coreml.neuralnetwork.operands import bools, floats, ints
from converter.graph.build import Builder
from converter.graph.infer import known
from converter.graph.walk import all_nodes

Names = set[str]
SIDES = ("ifBranch", "elseBranch")
_MOST_TRIPS = (1 << 63) - 1


def reads(layers: Sequence[Any]) -> Names:
    """Return all names that the layers (and bodies in them) read."""
    found: Names = set()
    for layer in with_bodies(layers):
        found.update(layer.input)
        if kind_of(layer) == "loop" and layer.loop.conditionVar:
            found.add(layer.loop.conditionVar)
    return found


def _leaves(layers: Sequence[Any]) -> bool:
    """Return whether these layers contain a loopBreak or loopContinue of the enclosing loop (not of
    a loop inside).
    """
    for layer in layers:
        kind = kind_of(layer)
        inside = kind == "branch" and any(_leaves(body.layers) for body in bodies(layer))
        if inside or kind in ("loopBreak", "loopContinue"):
            return True
    return False


class Flow:
    """Lift a sequence of layers that contains control flow."""

    def __init__(self, net: NetworkLift) -> None:
        self.net = net

    @property
    def b(self) -> Builder:
        return self.net.builder

    def run(self, layers: Sequence[Any], env: Env, path: str, needed: Names) -> ir.Value | None:
        """Lift `layers`; `needed` are the names that are used afterwards. Return the condition for
        continuing the loop; None means always.
        """
        for index, layer in enumerate(layers):
            kind, place = kind_of(layer), f"{path}.layers[{index}]"
            rest = layers[index + 1 :]
            if kind == "loopBreak":
                return self.b.const(False)
            if kind == "loopContinue":
                return None
            if kind == "branch" and _leaves([layer]):
                going_on: ir.Value | None = self._guarded(
                    self._leaving_branch, layer, env, place, rest, needed
                )
                return going_on
            if kind == "branch":
                self._guarded(self._branch, layer, env, place, reads(rest) | needed)
            elif kind == "loop":
                self._guarded(self._loop, layer, env, place, reads(rest) | needed)
            else:
                self.net.layer(layer, env, place)
        return None

    def _guarded(self, step: Any, layer: Any, env: Env, path: str, *rest: Any) -> Any:
        return self.net.noting(layer, env, path, lambda _: step(layer, env, path, *rest))

    def condition(self, value: ir.Value) -> ir.Value:
        """Return a scalar boolean: |x| > 1e-6."""
        b = self.b
        truth = (
            b.Greater(b.Abs(value), 1e-6) if value.dtype == ir.DataType.FLOAT else bools(b, value)
        )
        return b.Reshape(truth, [])

    def _inside(
        self, body: Builder, layers: Sequence[Any], env: Env, path: str, needed: Names
    ) -> tuple[Env, ir.Value | None]:
        outer = self.net.lifting.builder
        self.net.lifting.builder = body
        try:
            inner = dict(env)
            return inner, self.run(layers, inner, path, needed)
        finally:
            self.net.lifting.builder = outer

    def _branch(self, layer: Any, env: Env, path: str, needed: Names) -> None:
        cond = self.condition(first(layer, env))
        decided = known(cond)
        if decided is not None:
            name = SIDES[0 if bool(decided) else 1]
            side = list(getattr(layer.branch, name).layers)
            self.run(side, env, f"{path}.branch.{name}", needed)
            return
        made, ends, results = self._both_sides(layer, env, path, (), needed)
        self._if(cond, made, [[end[n] for n in results] for end, _ in ends], results, env)

    def _both_sides(
        self, layer: Any, env: Env, path: str, rest: Sequence[Any], needed: Names
    ) -> tuple[list[Builder], list[tuple[Env, ir.Value | None]], list[str]]:
        """Return the bodies of a branch including the layers that follow it, their names and flags
        (see `run`), and the names that both write.
        """
        sides = [[*getattr(layer.branch, n).layers, *rest] for n in SIDES]
        made = [self.b.body(n) for n in SIDES]
        ends = [
            self._inside(m, s, env, f"{path}.branch.{n}", needed)
            for m, s, n in zip(made, sides, SIDES, strict=True)
        ]
        written = sorted((writes(sides[0]) | writes(sides[1])) & needed)
        return made, ends, [n for n in written if all(n in end for end, _ in ends)]

    def _if(
        self,
        cond: ir.Value,
        made: list[Builder],
        values: list[list[ir.Value]],
        results: list[str],
        env: Env,
    ) -> tuple[ir.Value, ...]:
        if not values[0]:
            for body in made:
                discard(body)
            return ()
        types = [x.dtype == y.dtype for x, y in zip(*values, strict=True)]
        for body, side in zip(made, values, strict=True):
            body.output(
                *(v if same else floats(body, v) for v, same in zip(side, types, strict=True))
            )
        graphs: dict[str, Any] = {"then_branch": made[0].graph, "else_branch": made[1].graph}
        outs = self.b.ops("If", cond, outputs=len(values[0]), names=results, **graphs)
        env.update(zip(results, outs, strict=False))
        return outs

    def _leaving_branch(
        self, layer: Any, env: Env, path: str, rest: Sequence[Any], needed: Names
    ) -> ir.Value:
        cond = self.condition(first(layer, env))
        made, ends, results = self._both_sides(layer, env, path, rest, needed)
        values = [
            [*(end[n] for n in results), m.const(True) if flag is None else flag]
            for m, (end, flag) in zip(made, ends, strict=True)
        ]
        return self._if(cond, made, values, results, env)[-1]

    def _loop(self, layer: Any, env: Env, path: str, needed: Names) -> None:
        loop, b = layer.loop, self.b
        test, body = list(loop.conditionNetwork.layers), list(loop.bodyNetwork.layers)
        trips: ir.Value | None = None
        if layer.input:
            trips = b.Reshape(ints(b, first(layer, env)), [])
        elif loop.maxLoopIterations or not test:
            trips = b.const(min(int(loop.maxLoopIterations), _MOST_TRIPS))
        cond = None
        if test:
            self.run(
                test,
                env,
                f"{path}.loop.conditionNetwork",
                reads(body) | needed | {loop.conditionVar},
            )
            cond = self.condition(self._known(env, loop.conditionVar))
        used = reads(test) | reads(body) | needed
        names = [n for n in sorted(writes(test) | writes(body)) if n in env and n in used]
        initial = [env[n] for n in names]
        for _ in range(4):
            made, finals = self._loop_body(layer, env, path, names, initial)
            better = self._agreed(initial, finals)
            if better is None:
                break
            discard(made)
            initial = better
        else:
            raise MappingError("the types of the loop's carried values do not converge")
        outs = b.ops(
            "Loop", trips, cond, *initial, outputs=len(names), names=names, body=made.graph
        )
        env.update(zip(names, outs, strict=True))

    def _known(self, env: Env, name: str) -> ir.Value:
        if name not in env:
            raise MappingError(f"the condition network does not write {name!r}", "R105")
        return env[name]

    def _loop_body(
        self, layer: Any, env: Env, path: str, names: list[str], initial: list[ir.Value]
    ) -> tuple[Builder, list[ir.Value]]:
        made = self.b.body("body")
        made.input("iteration", ir.DataType.INT64, [])
        made.input("keep", ir.DataType.BOOL, [])
        inner = dict(env)
        for name, value in zip(names, initial, strict=True):
            inner[name] = made.input(
                name, value.dtype or ir.DataType.FLOAT, value.meta.get("coreml.loose", value.shape)
            )
        test, body = list(layer.loop.conditionNetwork.layers), list(layer.loop.bodyNetwork.layers)
        inner, flag = self._inside(
            made, body, inner, f"{path}.loop.bodyNetwork", set(names) | reads(test)
        )
        if test:
            inner, _ = self._inside(
                made,
                test,
                inner,
                f"{path}.loop.conditionNetwork",
                set(names) | {layer.loop.conditionVar},
            )
            outer, self.net.lifting.builder = self.net.lifting.builder, made
            again = self.condition(self._known(inner, layer.loop.conditionVar))
            self.net.lifting.builder = outer
            flag = again if flag is None else made.And(flag, again)
        if any(n not in inner for n in names):
            raise MappingError("the loop's body does not preserve a carried value")
        finals = [
            floats(made, inner[n]) if v.dtype == ir.DataType.FLOAT else inner[n]
            for n, v in zip(names, initial, strict=True)
        ]
        made.output(flag if flag is not None else made.const(True), *finals)
        return made, finals

    def _agreed(self, initial: list[ir.Value], finals: list[ir.Value]) -> list[ir.Value] | None:
        """Return the initial values converted to the type and shape that the body returns: as
        floats, or with unknown dimensions; None when all fit.
        """
        result, changed = [], False
        for first, last in zip(initial, finals, strict=True):
            value = first
            if last.dtype != first.dtype:
                value, changed = floats(self.b, first), True
            before = value.meta.get("coreml.loose", value.shape)
            if before is not None and last.shape is not None and list(before) != list(last.shape):
                if len(before) != len(last.shape):
                    raise MappingError(
                        f"{first.name} changes its rank inside the loop from "
                        f"{len(before)} to {len(last.shape)}"
                    )
                loose = [x if x == y else None for x, y in zip(before, last.shape, strict=True)]
                if loose != list(before):
                    value = value if known(value) is None else self.b.Identity(value)
                    value.meta["coreml.loose"] = ir.Shape(loose)
                    changed = True
            result.append(value)
        return result if changed else None


def first(layer: Any, env: Env) -> ir.Value:
    """Return the first input of a layer; raise MappingError R105 if it has none."""
    if not layer.input:
        raise MappingError("input 0 is absent", "R105")
    return env[layer.input[0]]


def discard(body: Builder) -> None:
    """Remove the nodes of an abandoned body, so that they no longer count as users of
    outer values.
    """
    for node in all_nodes(body.graph):
        node.resize_inputs(0)
