"""ONNX of any opset -> the canonical graph, rebuilt node by node with types and shapes known at
every step.

For each node, in this order: a model-local function is entered (with the opsets of the function),
an older spelling is upgraded (upgrade.py), implicit forms are made explicit (canonical.py),
com.microsoft operators and operators newer than opset 21 are rewritten (microsoft.py,
opset_converter/v22_plus.py) or replaced by the function that ONNX itself gives for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    narrow_types,
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
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift_bodies import control_flow, with_sizes
from converter.formats.onnx.loadable import APART
from converter.formats.onnx.op import Op, missing, plain, several
from converter.formats.onnx.opset_converter import upgrade
from converter.formats.onnx.opset_converter import v1_6 as early
from converter.formats.onnx.opset_converter import v22_plus as newer
from converter.formats.onnx.schema import check, check_declared, function_of, schema_at
from converter.formats.onnx.scope import Opsets, Scope
from converter.formats.onnx.types import (
    NOMINAL,
    check_widened,
    fit_types,
    merge_type,
    nominal_type,
    presented,
    too_new,
    weight,
)
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, OPSET, custom
from converter.graph.build import AT, Builder, new_model
from converter.graph.extensions import lookup
from converter.graph.infer import InferenceError, schema_of
from converter.graph.network import Network
from converter.graph.open_sizes import is_open
from converter.graph.value import with_operators

NEWEST = onnx.defs.onnx_opset_version()
# nodes after inlining, and times those of the file: functions that call each other could ask for
# any number
FEW_NODES, SHARE = 20_000, 64
_MAIN = re.compile(r"graph(\.node\[\d+\])?")
STANDARD = ("", "ai.onnx")
TABLES = (early,)  # it enters its rows into upgrade.ROWS
_OWN = (EXTENSION_DOMAIN, CHANNELS_LAST_DOMAIN)


def lift(proto: onnx.ModelProto, weights: TensorFiles) -> Network:
    """Return the canonical graph. ReadError (invalid), UnsupportedError X201 with every operator
    that has no meaning here.
    """
    check_version(proto, Where(str(weights.model), path="ir_version"))
    try:
        return Lifter(proto, weights).model()
    except RecursionError:
        raise unreadable("R103", "the model is nested too deeply", weights.model) from None


def _layer(proto: onnx.NodeProto) -> str:
    """Return the name of a node, or of its first output."""
    return proto.name or next(iter(proto.output), "")


class Lifter:
    """The conversion of one ONNX file to the graph."""

    def __init__(self, proto: onnx.ModelProto, weights: TensorFiles) -> None:
        self.proto, self.weights, self.file = proto, weights, str(weights.model)
        defined = (*custom.current().functions, *proto.functions)
        self.functions = {(f.domain, f.name, f.overload): f for f in defined}
        self.problems: list[Diagnostic] = []
        self.notes: list[Diagnostic] = []
        nodes = len(proto.graph.node) + sum(len(f.node) for f in defined)
        self.declared: dict[str, onnx.TypeProto] = {}
        self.made, self.most = 0, FEW_NODES + SHARE * nodes
        self.calls: list[tuple[str, str, str]] = []
        self.public: set[str] = set()
        self.read: set[ir.Value] = set()
        self.defaults = default_names(proto)
        self.maps: dict[str, list[Any]] = {}

    def refusal(
        self, code: str, message: str, path: str = "", layer: str = "", kind: str = ""
    ) -> ReadError:
        """Return a ReadError at a path inside the file."""
        return unreadable(code, message, Where(self.file, path=path, layer=layer, kind=kind))

    def opsets(self, imports: Any) -> Opsets:
        """Return the opset versions by domain. Raises ReadError R104 for a version that is not
        supported.
        """
        found = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in imports}
        version = found.get("")
        if version is not None and not 1 <= version <= NEWEST:
            message = f"ai.onnx opset {version} is not supported; netconv reads 1 to {NEWEST}"
            raise self.refusal("R104", message, "opset_import")
        return found

    def model(self) -> Network:
        """Lift the main graph. Raises UnsupportedError with all refusals."""
        graph = self.proto.graph
        opsets = self.opsets(self.proto.opset_import)
        model, b = new_model(graph.name or "main")
        # names of the main graph come first: sub-graphs and functions give way
        self.public.update(o for node in graph.node for o in node.output if o)
        self.public.update([*(v.name for v in graph.input), *(t.name for t in graph.initializer)])
        outputs = self.graph(graph, Scope(b, opsets, "graph", {}))
        if self.problems:
            raise UnsupportedError(self.problems)
        self.drop_replaced(model.graph, outputs)
        if ai_onnx_ml.kept(model.graph):
            model.graph.opset_imports[ai_onnx_ml.DOMAIN] = max(
                opsets[ai_onnx_ml.DOMAIN], ai_onnx_ml.LEAST
            )
        declare_outputs(model.graph, outputs, graph, b)
        take_metadata(model, self.proto)
        values = {
            t.name: self.weights.tensor(t).numpy()
            for t in graph.initializer
            if t.name in self.defaults
        }
        states = state_names(self.proto)
        interface: dict[str, Any] = {}
        if values or states:
            interface = {"defaults": values, "states": states}
        if maps := {o.name: self.maps[o.name] for o in graph.output if o.name in self.maps}:
            interface["maps"] = maps
        return Network(with_sizes(model), "onnx", self.notes, interface=interface)

    def drop_replaced(self, graph: ir.Graph, outputs: list[ir.Value]) -> None:
        """Remove weights that the file's nodes use but their replacements do not: other weights
        were derived from them. Weights that are unused in the file stay.
        """
        for name, value in list(graph.initializers.items()):
            if value in self.read and not value.uses() and value not in outputs:
                del graph.initializers[name]

    def graph(
        self, proto: onnx.GraphProto, scope: Scope, inputs: Sequence[ir.Value] | None = None
    ) -> list[ir.Value]:
        """Write a graph; `inputs` are given values for a body (None: the graph declares its own).
        Returns the outputs.
        """
        path = scope.path
        for t in proto.initializer:
            if t.name not in self.defaults or path != "graph":
                tensor = self.weights.tensor(t, f"{path} initializer {t.name}")
                self.constant(scope, t.name, tensor)
        for s in proto.sparse_initializer:
            self.constant(scope, s.values.name, order.dense(self.weights, s, path))
        constants = {n: scope.values[n] for n in scope.own}
        check_constants(proto, constants, Where(self.file, path=f"{path}.input"))
        if inputs is None:
            for info in proto.input:
                if info.name not in constants:
                    self.define(scope, info.name, self.input(scope.b, info), path)
        elif len(inputs) != len(proto.input):
            message = f"the body takes {len(proto.input)} inputs, got {len(inputs)}"
            raise self.refusal("R105", message, path)
        else:
            for info, given in zip(proto.input, inputs, strict=True):
                self.define(scope, info.name, given, path)
        declared = {v.name: v.type for v in proto.value_info}
        self.declared |= {v.name: v.type for v in proto.output} | declared
        where = Where(self.file, path=f"{path}.value_info")
        for name, value in self.nodes(proto, scope, f"{path}.node"):
            if name in declared and value is not None and not is_open():
                merge_type(value, declared[name], where)
        return self.results(proto, scope)

    def constant(self, scope: Scope, name: str, tensor: ir.TensorProtocol) -> None:
        """Define an initializer in a scope."""
        value = weight(scope.b, tensor, self.hint(name, scope.path))
        self.define(scope, name, value, scope.path)

    def nodes(self, proto: Any, scope: Scope, path: str) -> Iterator[tuple[str, ir.Value | None]]:
        """Write the nodes of a graph or a function; return their results by name."""
        ordered = order.sorted_nodes(
            proto, scope.values, lambda m, i: self.refusal("R105", m, f"{path}[{i}]")
        )
        for index, node in ordered:
            here = f"{path}[{index}]"
            for name, value in zip(node.output, self.node(node, scope, here), strict=False):
                if name:
                    self.define(scope, name, value, here)
                    yield name, value

    def results(self, proto: onnx.GraphProto, scope: Scope) -> list[ir.Value]:
        """Return the graph's outputs, with types as far as the graph declares them."""
        found = []
        for info in proto.output:
            value = scope.values.get(info.name)
            if value is None:
                raise self.refusal("R105", f"output {info.name!r} is not defined", scope.path)
            if self.present("output", info, value):
                value = narrow_types.plain_copy(scope.b, value)
            elif info.name in self.maps:
                pass  # a map of which the graph has the numbers
            elif not self.is_too_new("output", info, scope.path):
                merge_type(value, info.type, Where(self.file, path=f"{scope.path}.output"))
            found.append(value)
        return found

    def is_too_new(self, side: str, info: onnx.ValueInfoProto, path: str) -> bool:
        """Return whether an input or output has a type that the graph lacks; that is noted."""
        newer = too_new(info.type)
        if newer is not None:
            message = f"{side} {info.name!r} has the type {newer}, which netconv does not support"
            self.problems.append(Diagnostic("X201", message, where=Where(self.file, path=path)))
        return newer is not None

    def define(self, scope: Scope, name: str, value: ir.Value | None, path: str) -> None:
        """Set the value of a name in a scope. Raises ReadError for a name that is written twice."""
        if not isinstance(name, str):  # protobuf gives bytes for invalid UTF-8
            raise self.refusal("R103", f"name {name!r} is not valid UTF-8", path)
        if name in scope.own:
            raise self.refusal("R105", f"name {name!r} is written twice", path)
        scope.own.add(name)
        scope.values[name] = value

    def hint(self, name: str, path: str) -> str:
        """Return the preferred name for a value; names of the main graph are reserved for it."""
        return name if name not in self.public or _MAIN.fullmatch(path) else f"{name}_inner"

    def present(self, side: str, info: onnx.ValueInfoProto, value: ir.Value) -> bool:
        """Return whether an input or output has a type that the graph lacks; it is presented in a
        wider one, with a warning.
        """
        wider = presented(info.type)
        if wider is None:
            return False
        name = nominal_type(info.type.tensor_type.elem_type)
        if side == "input":
            value.type = ir.TensorType(wider)
            value.meta[NOMINAL] = name
        elif narrow_types.narrow(value) != name:
            return False
        message = f"the {side} {info.name!r} is {name}, presented as {wider.name}"
        self.notes.append(Diagnostic("X205", message, "warning", Where(self.file, layer=info.name)))
        return True

    def input(self, b: Builder, info: onnx.ValueInfoProto) -> ir.Value:
        """Declare an input. Raises ReadError R105 if it has no type."""
        value = declare_input(b, info)
        if self.present("input", info, value):
            return value
        if not self.is_too_new("input", info, "graph.input") and value.type is None:
            raise self.refusal("R105", f"input {info.name!r} has no type", "graph.input")
        return value

    def node(self, proto: onnx.NodeProto, scope: Scope, path: str) -> Sequence[ir.Value | None]:
        """Lift a node, whose location its nodes record. Raises ReadError R103 if inlined functions
        grow too large.
        """
        self.made += 1
        if self.made > self.most:
            written_out = f"more than {self.most} nodes after its functions are inlined"
            raise self.refusal("R103", f"the model has {written_out}", path)
        b, source = scope.b, {p.key: p.value for p in proto.metadata_props}
        layer = _layer(proto)
        if not any(k.startswith("netconv.") for k in source):
            own = {"format": "onnx", "type": proto.op_type, "layer": layer}
            source |= {f"netconv.{k}": v for k, v in own.items()}
        source[AT] = path  # not of the file that this one may have been converted from
        previous, b.source = b.source, source if not self.calls else b.source
        where = Where(self.file, path=path, layer=layer, kind=proto.op_type)
        try:
            results = self.translate(proto, scope, path)
            made = results[0].producer() if results and results[0] is not None else None
            if made is not None and proto.name and made.op_type == proto.op_type and not self.calls:
                made.name = proto.name
            return results
        except UnsupportedError:
            raise
        except ReadError:
            # errors that follow from an operator that could not be read are not reported
            if not self.problems:
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
            message = f"{proto.op_type} has invalid attributes or inputs: {e}"
            raise ReadError(Diagnostic("R110", message, where=where)) from None
        finally:
            b.source = previous
        # untyped values for unreadable operators, so that the remaining nodes are checked too
        return [ir.Value(name=b.names.fresh(o or "unknown")) for o in proto.output]

    def translate(
        self, proto: onnx.NodeProto, scope: Scope, path: str
    ) -> Sequence[ir.Value | None]:
        """Return the results of a node: of a function of the file, an extension operator, or a
        standard one.
        """
        inputs = [scope.values[i] if i else None for i in proto.input]
        self.read.update(v for v in inputs if v is not None)
        attributes = decoded(proto, scope.bound, self.weights)
        function = self.functions.get((proto.domain, proto.op_type, proto.overload))
        kind = proto.op_type.partition(APART)[0] if proto.domain in _OWN else proto.op_type
        catalogued = proto.domain in _OWN and (
            proto.domain != EXTENSION_DOMAIN or lookup(kind) is not None
        )
        if function is not None and not catalogued:
            return self.call(function, inputs, attributes, scope.b, path)
        domain = "" if proto.domain in STANDARD else proto.domain
        names = [self.hint(o, path) if o else "" for o in proto.output]
        if catalogued:
            attributes = {k: plain(v) for k, v in attributes.items()}
            count = len(names)
            return scope.b.ops(
                kind, *inputs, domain=domain, outputs=count, names=names, **attributes
            )
        version = scope.opsets.get(domain)
        if version is None:
            message = f"domain {proto.domain!r} is used but not imported"
            raise self.refusal("R105", message, path, _layer(proto), proto.op_type)
        if self.is_unknown(proto, domain):
            return self.unknown(proto, inputs, attributes, scope.b, path)
        op = Op(proto.op_type, domain, version, inputs, attributes, names)
        results = self.standard(op, scope, path)
        if op.kind == "ZipMap" and op.domain == ai_onnx_ml.DOMAIN:
            self.maps[proto.output[0]] = ai_onnx_ml.labels_of(op)
        where = Where(self.file, path=path, layer=_layer(proto), kind=proto.op_type)
        self.notes.extend(Diagnostic("X213", note, "warning", where=where) for note in op.notes)
        return results

    def is_unknown(self, proto: onnx.NodeProto, domain: str) -> bool:
        """Return whether the node is of a domain that netconv does not know, or an operator that a
        known domain does not have.
        """
        kind = proto.op_type
        if domain == microsoft.DOMAIN:
            return kind not in microsoft.rows().table
        known_domain = domain in ("", ai_onnx_ml.DOMAIN, *_OWN)
        return not known_domain and schema_at(kind, 1, domain) is None

    def unknown(
        self,
        proto: onnx.NodeProto,
        inputs: list[Any],
        attributes: Attributes,
        b: Builder,
        path: str,
    ) -> Sequence[ir.Value]:
        """Carry an unknown operator, if that is allowed."""
        if not custom.current().carry:
            message = f"operator {proto.op_type} of the domain {proto.domain} is not known"
            meant = microsoft.REFUSED.get(proto.op_type) if "microsoft" in proto.domain else None
            raise MappingError(*(meant or (message, "X201", custom.HELP)))
        first = next((v for v in inputs if v is not None), None)
        plain_type = None if first is None else first.dtype
        declared = [self.declared_type(name, plain_type) for name in proto.output]
        names = [self.hint(o, path) if o else "" for o in proto.output]
        return custom.carried(b, proto.op_type, inputs, attributes, declared, proto.domain, names)

    def declared_type(
        self, name: str, otherwise: ir.DataType | None
    ) -> tuple[ir.DataType | None, list[Any] | None]:
        """Return the type and the sizes that the file declares for a tensor."""
        proto = self.declared.get(name)
        if proto is None or not proto.tensor_type.elem_type:
            return otherwise, None
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        sizes = None if shape is None else list(shape)
        return ir.DataType(proto.tensor_type.elem_type), sizes

    def call(
        self,
        function: onnx.FunctionProto,
        inputs: list[Any],
        attributes: Attributes,
        b: Builder,
        path: str,
    ) -> Sequence[ir.Value | None]:
        """Inline a model-local function: its nodes replace the call."""
        key = (function.domain, function.name, function.overload)
        if key in self.calls:
            raise self.refusal("R105", f"function {function.name!r} calls itself", path)
        if len(inputs) > len(function.input):
            takes = f"takes {len(function.input)} inputs, got {len(inputs)}"
            raise self.refusal("R105", f"function {function.name!r} {takes}", path)
        defaults = {a.name: decode(a, {}, self.weights) for a in function.attribute_proto}
        return self.body(key, function, inputs, {**defaults, **attributes}, b, path)

    def body(
        self,
        key: tuple[str, str, str],
        function: onnx.FunctionProto,
        inputs: list[Any],
        bound: Attributes,
        b: Builder,
        path: str,
    ) -> Sequence[ir.Value | None]:
        """Lift the nodes of the function `key`; an output that it does not write is None, which is
        an error if it is read.
        """
        given = [*inputs, *[None] * len(function.input)]
        values = dict(zip(function.input, given, strict=False))
        opsets, own = self.opsets(function.opset_import), set(function.input)
        scope = Scope(b, opsets, path, values, own, bound)
        self.calls.append(key)
        try:
            for _ in self.nodes(function, scope, f"{path}.{function.name}.node"):
                pass
        finally:
            self.calls.pop()
        return [values.get(o) for o in function.output]

    def standard(self, op: Op, scope: Scope, path: str) -> Sequence[ir.Value | None]:
        """Lift an operator of ONNX, also of types that opset 21 does not compute in."""
        if name := narrow_types.begin_move(op, scope.b):
            made = self.standard(op, scope, path)
            return narrow_types.marked([with_operators(v) for v in made if v is not None], name)
        results = narrow_types.lift_narrow(op, scope.b)
        return self.known(op, scope, path) if results is None else several(results)

    def known(self, op: Op, scope: Scope, path: str) -> Sequence[ir.Value | None]:
        """Create an operator whose types the graph supports."""
        b = scope.b
        check_widened(op)
        if op.domain == microsoft.DOMAIN or op.kind in microsoft.UNDECLARED:
            if op.kind not in microsoft.rows().table:
                missing(op)
            results = microsoft.rows().apply(op, b)
            if results is not None:
                return several(results)
            op.domain, op.version = "", OPSET  # it is the standard one by now
        if op.domain == ai_onnx_ml.DOMAIN:
            return several(ai_onnx_ml.lift_classical(op, b))
        if op.domain:
            return self.own_function(op, scope, path)
        check_declared(op)
        if op.kind == "Constant":
            tensor = canonical.constant_tensor(op, lambda s: order.dense(self.weights, s, path))
            return [weight(b, tensor, op.outputs[0])]
        if op.kind in ("If", "Loop", "Scan"):
            return control_flow(self.graph, self.hint, op, scope, path)
        for rows in (upgrade.ROWS, canonical.ROWS, newer.ROWS):
            results = rows.apply(op, b)
            if results is not None:
                return several(results)
        if op.kind == "Identity":
            return [op.x]
        op.take("consumed_inputs")
        schema = schema_of(op.kind)
        if schema is None or schema.deprecated:
            return self.own_function(op, scope, path)
        check(op, schema)
        return fit_types(op, schema, b)

    def own_function(self, op: Op, scope: Scope, path: str) -> Sequence[ir.Value | None]:
        """Inline an operator that opset 21 does not have, by the function in its schema."""
        schema = schema_at(op.kind, op.version, op.domain) or missing(op)
        function = function_of(schema, op)
        if function is None:
            message = f"cannot be converted to opset {OPSET}"
            raise MappingError(f"operator {op.kind} of opset {op.version} {message}")
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
        if not any(o.domain == "" for o in function.opset_import):
            function.opset_import.add(domain="", version=scope.opsets.get("", NEWEST))
        bound = {**defaults, **op.attrs}
        return self.body(key, function, op.inputs, bound, scope.b, path)
