"""ONNX of any opset -> the canonical graph, rebuilt node by node with types and shapes known at
every step.

For each node, in this order: a model-local function is entered (with the opsets of the function),
an older spelling is upgraded (upgrade.py), implicit forms are made explicit (canonical.py),
com.microsoft operators and operators newer than opset 21 are rewritten (microsoft.py,
opset_converter/v22_plus.py) or replaced by the function that ONNX itself gives for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from converter.errors import (
    Diagnostic,
    MappingError,
    ReadError,
    UnsupportedError,
    Where,
    unreadable,
)
from converter.formats.onnx import (
    ai_onnx_ml,
    canonical,
    microsoft,
    microsoft_attention,
    microsoft_blocks,
    microsoft_cache,
    microsoft_quantised,
    microsoft_recurrent,
    microsoft_weights,
    order,
)
from converter.formats.onnx.attributes import Attributes, decode, decoded
from converter.formats.onnx.boundary import (
    check_constants,
    check_version,
    declare_input,
    declare_outputs,
    default_names,
    state_names,
    take_metadata,
)
from converter.formats.onnx.codec import Weights
from converter.formats.onnx.control import control_flow, with_sizes
from converter.formats.onnx.loadable import APART
from converter.formats.onnx.op import Op, missing, plain, several
from converter.formats.onnx.opset_converter import upgrade
from converter.formats.onnx.opset_converter import v1_6 as early
from converter.formats.onnx.opset_converter import v22_plus as newer
from converter.formats.onnx.schema import check, check_declared, function_of, schema_at
from converter.formats.onnx.types import check_widened, fit_types, merge_type, too_new, weight
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, OPSET
from converter.graph.build import Builder, new_model
from converter.graph.extensions import lookup
from converter.graph.infer import InferenceError, schema_of
from converter.graph.network import Network

NEWEST = onnx.defs.onnx_opset_version()
FEW_NODES, SHARE = (
    20_000,
    64,
    # nodes after inlining, and times those of the file: functions that call each other could ask
    # for any number
)
_MAIN = re.compile(r"graph(\.node\[\d+\])?")
STANDARD = ("", "ai.onnx")
TABLES = (
    early,
    microsoft_attention,
    microsoft_blocks,
    microsoft_cache,
    microsoft_quantised,
    microsoft_recurrent,
    microsoft_weights,
)  # they enter their rows into upgrade.ROWS and microsoft.ROWS
_OWN = (EXTENSION_DOMAIN, CHANNELS_LAST_DOMAIN)
Scope = dict[str, "ir.Value | None"]
Opsets = Mapping[str, int]


def lift(proto: onnx.ModelProto, weights: Weights) -> Network:
    """The canonical graph. ReadError (invalid), UnsupportedError X201 with every operator that has
    no meaning here.
    """
    check_version(proto, Where(str(weights.model), path="ir_version"))
    try:
        return Lifter(proto, weights).model()
    except RecursionError:
        raise unreadable(
            "R103", "the model is nested too deeply", Where(str(weights.model))
        ) from None


class Lifter:
    def __init__(self, proto: onnx.ModelProto, weights: Weights) -> None:
        self.proto, self.weights, self.file = proto, weights, str(weights.model)
        self.functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
        self.problems: list[Diagnostic] = []
        self.made, self.most = (
            0,
            FEW_NODES + SHARE * (len(proto.graph.node) + sum(len(f.node) for f in proto.functions)),
        )
        self.calls: list[tuple[str, str, str]] = []
        self.public: set[str] = set()
        self.defaults = default_names(proto)

    def refusal(
        self, code: str, message: str, path: str = "", layer: str = "", kind: str = ""
    ) -> ReadError:
        return unreadable(code, message, Where(self.file, path=path, layer=layer, kind=kind))

    def opsets(self, imports: Any) -> Opsets:
        found = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in imports}
        version = found.get("")
        if version is not None and not 1 <= version <= NEWEST:
            raise unreadable(
                "R104",
                f"ai.onnx opset {version} (1 to {NEWEST} are read)",
                Where(self.file, path="opset_import"),
            )
        return found

    def model(self) -> Network:
        graph = self.proto.graph
        opsets = self.opsets(self.proto.opset_import)
        model, b = new_model(graph.name or "main")
        for (
            node
        ) in graph.node:  # names of the main graph come first: sub-graphs and functions give way
            self.public.update(o for o in node.output if o)
        self.public.update([*(v.name for v in graph.input), *(t.name for t in graph.initializer)])
        outputs = self.graph(graph, b, {}, opsets, "graph", None)
        if self.problems:
            raise UnsupportedError(self.problems)
        if ai_onnx_ml.kept(model.graph):
            model.graph.opset_imports[ai_onnx_ml.DOMAIN] = opsets[ai_onnx_ml.DOMAIN]
        declare_outputs(model.graph, outputs, graph, b)
        take_metadata(model, self.proto)
        values = {
            t.name: self.weights.tensor(t).numpy()
            for t in graph.initializer
            if t.name in self.defaults
        }
        interface = {"defaults": values, "states": state_names(self.proto)} if values else {}
        return Network(with_sizes(model), "onnx", interface=interface)

    def graph(
        self,
        proto: onnx.GraphProto,
        b: Builder,
        outer: Scope,
        opsets: Opsets,
        path: str,
        inputs: Sequence[ir.Value] | None,
    ) -> list[ir.Value]:
        """Writes a graph with `b`; `inputs` are given values for a body (None: the graph declares
        its own). Returns the outputs.
        """
        scope: Scope = dict(outer)
        own: set[str] = set()
        for t in proto.initializer:
            if t.name in self.defaults and path == "graph":
                continue
            self.define(
                scope,
                own,
                t.name,
                weight(
                    b,
                    self.weights.tensor(t, f"{path} initializer {t.name}"),
                    self.hint(t.name, path),
                ),
                path,
            )
        for s in proto.sparse_initializer:
            dense = order.dense(self.weights, s, path)
            self.define(
                scope, own, s.values.name, weight(b, dense, self.hint(s.values.name, path)), path
            )
        check_constants(proto, {n: scope[n] for n in own}, Where(self.file, path=f"{path}.input"))
        formal = (
            [i for i in proto.input if i.name not in own] if inputs is None else list(proto.input)
        )
        if inputs is not None and len(inputs) != len(formal):
            raise self.refusal(
                "R105", f"the body takes {len(formal)} inputs and is given {len(inputs)}", path
            )
        for i, info in enumerate(formal):
            self.define(
                scope, own, info.name, self.input(b, info) if inputs is None else inputs[i], path
            )
        declared = {v.name: v for v in proto.value_info}
        for index, node in order.sorted_nodes(
            proto, scope, lambda m, i: self.refusal("R105", m, f"{path}.node[{i}]")
        ):
            results = self.node(node, b, scope, opsets, f"{path}.node[{index}]", {})
            for name, value in zip(node.output, results, strict=False):
                if name:
                    self.define(scope, own, name, value, f"{path}.node[{index}]")
                    if name in declared and value is not None:
                        merge_type(
                            value, declared[name].type, Where(self.file, path=f"{path}.value_info")
                        )
        return self.results(proto, scope, path)

    def results(self, proto: onnx.GraphProto, scope: Scope, path: str) -> list[ir.Value]:
        """The graph's outputs, typed as far as it declares them."""
        found = []
        for info in proto.output:
            value = scope.get(info.name)
            if value is None:
                raise self.refusal("R105", f"the output {info.name!r} is not defined", path)
            if (newer := too_new(info.type)) is not None:
                self.problems.append(
                    Diagnostic(
                        "X201",
                        f"the output {info.name!r} has the type {newer}",
                        where=Where(self.file, path=path),
                    )
                )
            else:
                merge_type(value, info.type, Where(self.file, path=f"{path}.output"))
            found.append(value)
        return found

    def define(
        self, scope: Scope, own: set[str], name: str, value: ir.Value | None, path: str
    ) -> None:
        if not isinstance(name, str):  # protobuf hands out bytes for what is no text
            raise self.refusal("R103", f"the name {name!r} is not valid UTF-8", path)
        if name in own:
            raise self.refusal("R105", f"the name {name!r} is written twice", path)
        own.add(name)
        scope[name] = value

    def hint(self, name: str, path: str) -> str:
        """The name wished for a value: names of the main graph are its own."""
        return name if name not in self.public or _MAIN.fullmatch(path) else f"{name}_inner"

    def input(self, b: Builder, info: onnx.ValueInfoProto) -> ir.Value:
        value = declare_input(b, info)
        if (newer := too_new(info.type)) is not None:
            self.problems.append(
                Diagnostic(
                    "X201",
                    f"the input {info.name!r} has the type {newer}",
                    where=Where(self.file, path="graph.input"),
                )
            )
        elif value.type is None:
            raise self.refusal("R105", f"the input {info.name!r} has no type", "graph.input")
        return value

    def node(
        self,
        proto: onnx.NodeProto,
        b: Builder,
        scope: Scope,
        opsets: Opsets,
        path: str,
        bound: Attributes,
    ) -> Sequence[ir.Value | None]:
        self.made += 1
        if self.made > self.most:
            raise self.refusal(
                "R103",
                f"the model has more than {self.most} nodes when its functions are written out",
                path,
            )
        source = {p.key: p.value for p in proto.metadata_props}
        if not any(k.startswith("netconv.") for k in source):
            source.update(
                {
                    "netconv.format": "onnx",
                    "netconv.type": proto.op_type,
                    "netconv.layer": proto.name or (proto.output[0] if proto.output else ""),
                }
            )
        previous, b.source = b.source, source if not self.calls else b.source
        where = Where(self.file, path=path, layer=proto.name, kind=proto.op_type)
        try:
            results = self.translate(proto, b, scope, opsets, path, bound)
            made = results[0].producer() if results and results[0] is not None else None
            if made is not None and proto.name and made.op_type == proto.op_type and not self.calls:
                made.name = proto.name
            return results
        except UnsupportedError:
            raise
        except ReadError:
            if (
                not self.problems
            ):  # what follows from an operator that could not be read says nothing new
                raise
        except InferenceError as e:
            if not self.problems:
                raise ReadError(Diagnostic("R105", str(e), where=where)) from None
        except MappingError as e:
            if e.code.startswith("R"):
                raise ReadError(Diagnostic(e.code, str(e), where=where, help=e.help)) from None
            self.problems.append(Diagnostic("X201", str(e), where=where, help=e.help))
        except (
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
            AssertionError,
            ir.serde.SerdeError,
        ) as e:
            # attributes or operands that the operator's schema does not allow; every rule reads
            # them with plain Python
            raise ReadError(
                Diagnostic(
                    "R110",
                    f"{proto.op_type} has attributes or inputs that do not fit: {e}",
                    where=where,
                )
            ) from None
        finally:
            b.source = previous
        # untyped values for what could not be read, so that the remaining nodes are looked at too
        return [ir.Value(name=b.names.fresh(o or "unknown")) for o in proto.output]

    def translate(
        self,
        proto: onnx.NodeProto,
        b: Builder,
        scope: Scope,
        opsets: Opsets,
        path: str,
        bound: Attributes,
    ) -> Sequence[ir.Value | None]:
        inputs = [scope[i] if i else None for i in proto.input]
        attributes = decoded(proto, bound, self.weights)
        function = self.functions.get((proto.domain, proto.op_type, proto.overload))
        kind = proto.op_type.partition(APART)[0] if proto.domain in _OWN else proto.op_type
        catalogued = proto.domain in _OWN and (
            proto.domain != EXTENSION_DOMAIN or lookup(kind) is not None
        )
        if function is not None and not catalogued:
            return self.call(function, inputs, attributes, b, path)
        domain = "" if proto.domain in STANDARD else proto.domain
        names = [self.hint(o, path) if o else "" for o in proto.output]
        if catalogued:
            return b.ops(
                kind,
                *inputs,
                domain=proto.domain,
                outputs=len(names),
                names=names,
                **{k: plain(v) for k, v in attributes.items()},
            )
        version = opsets.get(domain)
        if version is None:
            raise self.refusal(
                "R105",
                f"the domain {proto.domain!r} is used but not imported",
                path,
                proto.name,
                proto.op_type,
            )
        op = Op(proto.op_type, domain, version, inputs, attributes, names)
        return self.standard(op, b, scope, opsets, path)

    def call(
        self,
        function: onnx.FunctionProto,
        inputs: list[Any],
        attributes: Attributes,
        b: Builder,
        path: str,
    ) -> Sequence[ir.Value | None]:
        """A model-local function: its nodes take the place of the call."""
        key = (function.domain, function.name, function.overload)
        if key in self.calls:
            raise self.refusal("R105", f"the function {function.name!r} calls itself", path)
        if len(inputs) > len(function.input):
            raise self.refusal(
                "R105",
                f"the function {function.name!r} takes {len(function.input)} inputs, not "
                f"{len(inputs)}",
                path,
            )
        defaults = {a.name: decode(a, {}, self.weights) for a in function.attribute_proto}
        self.calls.append(key)
        try:
            return self.body(function, inputs, {**defaults, **attributes}, b, path)
        finally:
            self.calls.pop()

    def body(
        self,
        function: onnx.FunctionProto,
        inputs: list[Any],
        bound: Attributes,
        b: Builder,
        path: str,
    ) -> Sequence[ir.Value | None]:
        """The function's nodes; an output that it does not write is None, which a reader of it
        finds out.
        """
        scope: Scope = dict(
            zip(function.input, [*inputs, *[None] * len(function.input)], strict=False)
        )
        opsets, own = self.opsets(function.opset_import), set(function.input)
        for index, node in order.sorted_nodes(
            function,
            scope,
            lambda m, i: self.refusal("R105", m, f"{path} {function.name}.node[{i}]"),
        ):
            inner = f"{path}.{function.name}.node[{index}]"
            results = self.node(node, b, scope, opsets, inner, bound)
            for name, value in zip(node.output, results, strict=False):
                if name:
                    self.define(scope, own, name, value, inner)
        return [scope.get(o) for o in function.output]

    def standard(
        self, op: Op, b: Builder, scope: Scope, opsets: Opsets, path: str
    ) -> Sequence[ir.Value | None]:
        check_widened(op)
        if op.domain == microsoft.DOMAIN or op.kind in microsoft.UNDECLARED:
            results = (
                microsoft.ROWS.apply(op, b) if op.kind in microsoft.ROWS.table else missing(op)
            )
            if results is not None:
                return several(results)
            op.domain, op.version = (
                "",
                OPSET,
            )  # a contributed operator that is the standard one by now
        if op.domain == ai_onnx_ml.DOMAIN:
            return several(ai_onnx_ml.lift_classical(op, b))
        if op.domain == "":
            check_declared(op)
        if op.domain == "" and op.kind == "Constant":
            return [
                weight(
                    b,
                    canonical.constant_tensor(op, lambda s: order.dense(self.weights, s, path)),
                    op.outputs[0],
                )
            ]
        if op.domain == "" and op.kind in ("If", "Loop", "Scan"):
            return control_flow(self, op, b, scope, opsets, path)
        for rows in (upgrade.ROWS, canonical.ROWS, newer.ROWS) if op.domain == "" else ():
            results = rows.apply(op, b)
            if results is not None:
                return several(results)
        return self.emit(op, b, opsets, path)

    def emit(self, op: Op, b: Builder, opsets: Opsets, path: str) -> Sequence[ir.Value | None]:
        if op.domain == "" and op.kind in ("Identity",):
            return [op.need(0)]
        op.take("consumed_inputs")
        schema = schema_of(op.kind) if op.domain == "" else None
        if schema is None or schema.deprecated:
            return self.own_function(op, b, opsets, path)
        check(op, schema)
        return fit_types(op, schema, b)

    def own_function(
        self, op: Op, b: Builder, opsets: Opsets, path: str
    ) -> Sequence[ir.Value | None]:
        """An operator that opset 21 lacks, through the function that its schema carries."""
        schema = schema_at(op.kind, op.version, op.domain) or missing(op)
        function = function_of(schema, op)
        if function is None:
            raise MappingError(
                f"the operator {op.kind} of opset {op.version} has no counterpart in opset {OPSET}"
            )
        if op.domain:
            check(op, schema)
        defaults = {
            n: decode(a.default_value, {}, self.weights)
            for n, a in schema.attributes.items()
            if a.default_value.name
        }
        key = (op.domain, op.kind, "")
        if key in self.calls:
            missing(op)
        self.calls.append(key)
        try:
            if not any(o.domain == "" for o in function.opset_import):
                function.opset_import.add(domain="", version=opsets.get("", NEWEST))
            return self.body(function, list(op.inputs), {**defaults, **op.attrs}, b, path)
        finally:
            self.calls.pop()
