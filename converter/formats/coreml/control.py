"""Control flow: branch, loop, loopBreak and loopContinue -> If and Loop.

Core ML's bodies share the names of the network around them and write into it; ONNX's return values. So for each body the names
it writes and that matter afterwards become results of an If, or values that a Loop carries.

A branch with a loopBreak or loopContinue in it takes along what follows it in the body:

    branch(c) { break } else { }; rest      ->      If(c) { keep = false } else { rest; keep = true }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.diagnostics import Where
from converter.formats.coreml.blobs import bools, floats, ints
from converter.formats.coreml.lift import DAMAGE, Env, NetworkLift, all_layers, kind_of
from converter.graph.build import Builder
from converter.graph.infer import InferenceError, known
from converter.mapping.node import Layer, MappingError

Names = set[str]
_MOST_TRIPS = (1 << 63) - 1


def reads(layers: Sequence[Any]) -> Names:
    """All names that the layers (and bodies in them) read."""
    found: Names = set()
    for layer in layers:
        for inner in [layer, *[x for body in _inner(layer) for x in all_layers(body)]]:
            found.update(inner.input)
            if kind_of(inner) == "loop" and inner.loop.conditionVar:
                found.add(inner.loop.conditionVar)
    return found


def writes(layers: Sequence[Any]) -> Names:
    return {name for layer in layers for inner in [layer, *[x for body in _inner(layer) for x in all_layers(body)]] for name in inner.output}


def _inner(layer: Any) -> list[Any]:
    from converter.formats.coreml.lift import bodies

    return bodies(layer)


def _leaves(layers: Sequence[Any]) -> bool:
    """Whether a loopBreak or loopContinue of the enclosing loop is in here (not one of a loop inside)."""
    for layer in layers:
        kind = kind_of(layer)
        if kind in ("loopBreak", "loopContinue") or (kind == "branch" and any(_leaves(body.layers) for body in _inner(layer))):
            return True
    return False


class Flow:
    """Lifts a sequence of layers with control flow in it."""

    def __init__(self, net: NetworkLift) -> None:
        self.net = net

    @property
    def b(self) -> Builder:
        return self.net.builder

    def run(self, layers: Sequence[Any], env: Env, path: str, needed: Names) -> ir.Value | None:
        """Lifts `layers`; `needed` are the names that matter afterwards. The value says whether the loop goes on; None is always."""
        for index, layer in enumerate(layers):
            kind, place = kind_of(layer), f"{path}.layers[{index}]"
            rest = layers[index + 1 :]
            if kind == "loopBreak":
                return self.b.const(False)
            if kind == "loopContinue":
                return None
            if kind == "branch" and _leaves([layer]):
                going_on: ir.Value | None = self._guarded(self._leaving_branch, layer, env, place, rest, needed)
                return going_on
            if kind == "branch":
                self._guarded(self._branch, layer, env, place, reads(rest) | needed)
            elif kind == "loop":
                self._guarded(self._loop, layer, env, place, reads(rest) | needed)
            else:
                self.net.layer(layer, env, place)
        return None

    def _guarded(self, step: Any, layer: Any, env: Env, path: str, *rest: Any) -> Any:
        where = Where(self.net.model.path, path=path, layer=layer.name, kind=kind_of(layer))
        far = Layer(kind_of(layer), layer.name, inputs=[env.get(n) for n in layer.input], where=where)
        missing = [n for n in layer.input if n not in env]
        if missing:
            if missing[0] not in self.net.refused:
                self.net.lifting.refuse(far, f"{missing[0]!r} is read before any layer writes it", "R105")
            self.net.refused |= writes([layer])
            return None
        try:
            with self.b.provenance(format="coreml", layer=layer.name, type=kind_of(layer), where=path):
                return step(layer, env, path, *rest)
        except MappingError as e:
            self.net.lifting.refuse(far, str(e), e.code, e.help)
        except InferenceError as e:
            self.net.lifting.refuse(far, f"inputs do not fit: {e}", "R105")
        except DAMAGE as e:
            self.net.lifting.refuse(far, f"the parameters do not fit together: {type(e).__name__} {e}", "R110")
        self.net.refused |= writes([layer])
        return None

    def condition(self, value: ir.Value) -> ir.Value:
        """A scalar truth: |x| > 1e-6."""
        b = self.b
        truth = b.op("Greater", b.op("Abs", value), 1e-6) if value.dtype == ir.DataType.FLOAT else bools(b, value)
        return b.op("Reshape", truth, b.const([], dtype="int64"))

    def _inside(self, body: Builder, layers: Sequence[Any], env: Env, path: str, needed: Names) -> tuple[Env, ir.Value | None]:
        outer = self.net.lifting.builder
        self.net.lifting.builder = body
        try:
            inner = dict(env)
            return inner, self.run(layers, inner, path, needed)
        finally:
            self.net.lifting.builder = outer

    def _branch(self, layer: Any, env: Env, path: str, needed: Names) -> None:
        sides = [list(layer.branch.ifBranch.layers), list(layer.branch.elseBranch.layers)]
        names = ("ifBranch", "elseBranch")
        cond = self.condition(env[layer.input[0]])
        decided = known(cond)
        if decided is not None:
            side = 0 if bool(decided) else 1
            self.run(sides[side], env, f"{path}.branch.{names[side]}", needed)
            return
        made = [self.b.body(n) for n in names]
        ends = [self._inside(m, s, env, f"{path}.branch.{n}", needed)[0] for m, s, n in zip(made, sides, names, strict=True)]
        results = [n for n in sorted((writes(sides[0]) | writes(sides[1])) & needed) if n in ends[0] and n in ends[1]]
        self._if(cond, made, [[end[n] for n in results] for end in ends], results, env)

    def _if(self, cond: ir.Value, made: list[Builder], values: list[list[ir.Value]], results: list[str], env: Env) -> tuple[ir.Value, ...]:
        if not values[0]:
            for body in made:
                discard(body)
            return ()
        types = [x.dtype == y.dtype for x, y in zip(*values, strict=True)]
        for body, side in zip(made, values, strict=True):
            body.output(*(v if same else floats(body, v) for v, same in zip(side, types, strict=True)))
        outs = self.b.ops("If", cond, outputs=len(values[0]), names=results, then_branch=made[0].graph, else_branch=made[1].graph)
        for name, value in zip(results, outs, strict=False):
            env[name] = value
        return outs

    def _leaving_branch(self, layer: Any, env: Env, path: str, rest: Sequence[Any], needed: Names) -> ir.Value:
        names = ("ifBranch", "elseBranch")
        sides = [[*getattr(layer.branch, n).layers, *rest] for n in names]
        cond = self.condition(env[layer.input[0]])
        made = [self.b.body(n) for n in names]
        ends = [self._inside(m, s, env, f"{path}.branch.{n}", needed) for m, s, n in zip(made, sides, names, strict=True)]
        results = [n for n in sorted((writes(sides[0]) | writes(sides[1])) & needed) if n in ends[0][0] and n in ends[1][0]]
        flags = [flag if flag is not None else m.const(True) for m, (_, flag) in zip(made, ends, strict=True)]
        outs = self._if(cond, made, [[*(end[n] for n in results), flag] for (end, _), flag in zip(ends, flags, strict=True)], results, env)
        return outs[-1]

    def _loop(self, layer: Any, env: Env, path: str, needed: Names) -> None:
        loop, b = layer.loop, self.b
        test, body = list(loop.conditionNetwork.layers), list(loop.bodyNetwork.layers)
        trips: ir.Value | None = None
        if layer.input:
            trips = b.op("Reshape", ints(b, env[layer.input[0]]), b.const([], dtype="int64"))
        elif loop.maxLoopIterations or not test:
            trips = b.const(min(int(loop.maxLoopIterations), _MOST_TRIPS))
        cond = None
        if test:
            self.run(test, env, f"{path}.loop.conditionNetwork", reads(body) | needed | {loop.conditionVar})
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
            raise MappingError("the types of the values that the loop carries do not settle")
        outs = b.ops("Loop", trips, cond, *initial, outputs=len(names), names=names, body=made.graph)
        env.update(zip(names, outs, strict=True))

    def _known(self, env: Env, name: str) -> ir.Value:
        if name not in env:
            raise MappingError(f"the condition network does not write {name!r}", "R105")
        return env[name]

    def _loop_body(self, layer: Any, env: Env, path: str, names: list[str], initial: list[ir.Value]) -> tuple[Builder, list[ir.Value]]:
        made = self.b.body("body")
        made.input("iteration", ir.DataType.INT64, [])
        made.input("keep", ir.DataType.BOOL, [])
        inner = dict(env)
        for name, value in zip(names, initial, strict=True):
            inner[name] = made.input(name, value.dtype or ir.DataType.FLOAT, value.meta.get("coreml.loose", value.shape))
        test, body = list(layer.loop.conditionNetwork.layers), list(layer.loop.bodyNetwork.layers)
        inner, flag = self._inside(made, body, inner, f"{path}.loop.bodyNetwork", set(names) | reads(test))
        if test:
            inner, _ = self._inside(made, test, inner, f"{path}.loop.conditionNetwork", set(names) | {layer.loop.conditionVar})
            outer, self.net.lifting.builder = self.net.lifting.builder, made
            again = self.condition(self._known(inner, layer.loop.conditionVar))
            self.net.lifting.builder = outer
            flag = again if flag is None else made.op("And", flag, again)
        if any(n not in inner for n in names):
            raise MappingError("a value that the loop carries is lost in its body")
        finals = [floats(made, inner[n]) if v.dtype == ir.DataType.FLOAT else inner[n] for n, v in zip(names, initial, strict=True)]
        made.output(flag if flag is not None else made.const(True), *finals)
        return made, finals

    def _agreed(self, initial: list[ir.Value], finals: list[ir.Value]) -> list[ir.Value] | None:
        """The initial values made to fit what the body returns: as floats, or with unknown dimensions; None when all fit."""
        result, changed = [], False
        for first, last in zip(initial, finals, strict=True):
            value = first
            if last.dtype != first.dtype:
                value, changed = floats(self.b, first), True
            before = value.meta.get("coreml.loose", value.shape)
            if before is not None and last.shape is not None and list(before) != list(last.shape):
                if len(before) != len(last.shape):
                    raise MappingError(f"{first.name} changes its rank in the loop from {len(before)} to {len(last.shape)}")
                loose = [x if x == y else None for x, y in zip(before, last.shape, strict=True)]
                if loose != list(before):
                    value = value if known(value) is None else self.b.op("Identity", value)
                    value.meta["coreml.loose"] = ir.Shape(loose)
                    changed = True
            result.append(value)
        return result if changed else None


def discard(body: Builder) -> None:
    """Takes the nodes of an abandoned body apart, so that they no longer count as users of outer values."""
    graph = body.graph
    graph.outputs.clear()
    for node in reversed(list(graph)):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                inner = Builder(attribute.as_graph(), body.names)
                discard(inner)
        graph.remove(node, safe=True)
