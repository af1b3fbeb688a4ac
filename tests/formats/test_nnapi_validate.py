"""The validator: real tables are valid, every way of breaking one is found and named; every
signature binds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from nnapi_models import (
    F32,
    I32,
    MODELS,
    Q8,
    branches,
    constant,
    corpus,
    network,
    quantized,
    scalar,
    tensor,
)

from converter.formats.nnapi.codec import read_table
from converter.formats.nnapi.levels import feature_level
from converter.formats.nnapi.operations import NoMatch, bind, names_by_code, operations
from converter.formats.nnapi.table import (
    ChannelQuant,
    Lifetime,
    Location,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.formats.nnapi.validate import validate


@pytest.mark.corpus
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_corpus_is_valid(every: int) -> None:
    found = {p.parent.name: [str(d) for d in validate(read_table(p))] for p in corpus()[::every]}
    assert not {name: d for name, d in found.items() if d}


@pytest.mark.parametrize("name", MODELS)
def test_new_tables_are_valid(name: str) -> None:
    assert validate(MODELS[name]()) == []


def _operand(i: int, **changes: object) -> Callable[[Table], None]:
    def change(t: Table) -> None:
        for key, value in changes.items():
            setattr(t.operands[i], key, value)

    return change


def _inputs(op: int, *edit: tuple[int, int]) -> Callable[[Table], None]:
    def change(t: Table) -> None:
        for position, operand in edit:
            t.operations[op].inputs[position] = operand

    return change


def _do(action: Callable[[Table], object]) -> Callable[[Table], None]:
    return lambda t: action(t) and None


def _value(i: int, value: object) -> Callable[[Table], None]:
    def change(t: Table) -> None:
        t.operands[i].value = np.asarray(value, t.operands[i].type.dtype)

    return change


# network(): 0 data 1 conv 2 pool 3 flat 4 fc 5 prob, 6 7 8 the scalars 0 1 2, 9 filter, 10 bias, 11
# shape, 12 weights, 13 bias, 14 beta
NETWORK = [
    (
        "index beyond the operands",
        _inputs(0, (1, 99)),
        "operations[0].inputs[1]",
        "operand 99 does not exist, there are 15",
    ),
    ("no inputs", _do(lambda t: t.inputs.clear()), "inputIndexes", "at least one entry"),
    ("no outputs", _do(lambda t: t.outputs.clear()), "outputIndexes", "at least one entry"),
    (
        "input listed twice",
        _do(lambda t: t.inputs.append(0)),
        "inputIndexes[1]",
        "operand 0 is listed twice",
    ),
    (
        "output listed twice",
        _do(lambda t: t.outputs.append(5)),
        "outputIndexes[1]",
        "operand 5 is listed twice",
    ),
    (
        "input that is not listed",
        _operand(4, lifetime=Lifetime.MODEL_INPUT),
        "operands[4].lifetime",
        "inputIndexes does not list the operand",
    ),
    (
        "output that is not listed",
        _operand(4, lifetime=Lifetime.MODEL_OUTPUT),
        "operands[4].lifetime",
        "outputIndexes does not list the operand",
    ),
    (
        "input of another lifetime",
        _operand(0, lifetime=Lifetime.TEMPORARY_VARIABLE),
        "inputIndexes[0]",
        "must have the lifetime MODEL_INPUT, got TEMPORARY_VARIABLE",
    ),
    (
        "read before written",
        _do(lambda t: t.operations.reverse()),
        "operations[0].inputs[0]",
        "read before an operation writes it",
    ),
    (
        "written twice",
        _do(lambda t: t.operations.append(Operation("RELU", [1], [1]))),
        "operations[5].outputs[0]",
        "written a second time",
    ),
    (
        "a constant is written",
        _do(lambda t: t.operations.append(Operation("RELU", [1], [9]))),
        "operations[5].outputs[0]",
        "CONSTANT_REFERENCE and cannot be written",
    ),
    (
        "a temporary nobody writes",
        _do(lambda t: tensor(t, [1], lifetime=Lifetime.TEMPORARY_VARIABLE) or 1),
        "operands[15]",
        "no operation writes the operand",
    ),
    (
        "wrong count of consumers",
        _operand(7, consumers=2),
        "operands[7].numberOfConsumers",
        "read the operand 4 times",
    ),
    (
        "location without a value",
        _operand(0, location=Location(0, 4, 0)),
        "operands[0].location",
        "MODEL_INPUT must have no location",
    ),
    (
        "scalar with dimensions",
        _operand(7, dimensions=[1]),
        "operands[7].dimensions",
        "is a scalar and has no dimensions",
    ),
    (
        "constant without a value",
        _operand(9, value=None, lifetime=Lifetime.CONSTANT_REFERENCE),
        "operands[9]",
        "CONSTANT_REFERENCE must have a value",
    ),
    (
        "value of the wrong size",
        _operand(10, value=np.zeros(3, np.float32)),
        "operands[10]",
        "the value has 12 bytes, 16 are needed",
    ),
    (
        "scale of a float",
        _operand(0, scale=0.5),
        "operands[0].scale",
        "TENSOR_FLOAT32 must have scale 0",
    ),
    (
        "zero point of a float",
        _operand(0, zero_point=1),
        "operands[0].zeroPoint",
        "must have zero point 0, got",
    ),
    (
        "negative scale of an int32",
        _operand(11, scale=-1.0),
        "operands[11].scale",
        "must not be negative, got",
    ),
    (
        "boundary inside",
        _operand(1, boundary={}),
        "operands[1].boundary",
        "only inputs and outputs",
    ),
    (
        "per-channel scales of a float",
        _operand(9, channel_quant=ChannelQuant(0, (1.0,) * 4)),
        "operands[9].extraParams",
        "must not have per-channel scales",
    ),
    (
        "too few inputs",
        _do(lambda t: t.operations[0].inputs.pop()),
        "operations[0]",
        "CONV_2D takes 7 or 8 or 10 or 11 or 13 inputs, got 6",
    ),
    (
        "too many outputs",
        _do(lambda t: t.operations[4].outputs.append(4)),
        "operations[4]",
        "SOFTMAX takes 1 outputs, got 2",
    ),
    (
        "wrong type of input",
        _inputs(3, (2, 11)),
        "operations[3].inputs[2]",
        "bias must be TENSOR_FLOAT32, got TENSOR_INT32",
    ),
    (
        "two arguments swapped",
        _inputs(4, (0, 14), (1, 4)),
        "operations[4].inputs[0]",
        "TENSOR_QUANT8_ASYMM_SIGNED, got FLOAT32",
    ),
    (
        "wrong type of scalar",
        _inputs(4, (1, 7)),
        "operations[4].inputs[1]",
        "beta must be FLOAT32, got INT32",
    ),
    (
        "wrong type of output",
        _operand(5, type=I32),
        "operations[4].outputs[0]",
        "output must be TENSOR_FLOAT32, got TENSOR_INT32",
    ),
    (
        "required without value",
        _operand(10, value=None),
        "operations[0].inputs[2]",
        "bias is required, but operand 10 has no value",
    ),
    (
        "rank of an input",
        _operand(12, dimensions=[5, 64, 1]),
        "operations[3].inputs[1]",
        "weights of FULLY_CONNECTED must have rank 2, got 3",
    ),
    (
        "padding scheme",
        _inputs(0, (3, 6)),
        "operations[0].inputs[3]",
        "padding is 0; it must be one of 1, 2",
    ),
    (
        "activation",
        _value(6, 9),
        "operations[1].inputs[9]",
        "activation is 9; it must be one of 0, 1, 2, 3",
    ),
    (
        "stride of 0",
        _inputs(0, (4, 6)),
        "operations[0].inputs[4]",
        "stride_width is 0; it must be >=1",
    ),
    ("beta of 0", _value(14, 0.0), "operations[4].inputs[1]", "beta is 0.0; it must be >0"),
    (
        "output dimensions",
        _operand(1, dimensions=[1, 8, 7, 4]),
        "operations[0].outputs[0]",
        "dimensions of the output are [1, 8, 8, 4], but the operand declares [1, 8, 7, 4]",
    ),
    (
        "output rank",
        _operand(5, dimensions=[5]),
        "operations[4].outputs[0]",
        "the operand declares [5]",
    ),
    (
        "filter depth",
        _operand(0, dimensions=[1, 8, 8, 5]),
        "operations[0]",
        "weights [4, 3, 3, 3] in 1 groups do not fit the 5 channels",
    ),
    (
        "elements of a reshape",
        _value(11, [1, 63]),
        "operations[2]",
        "64 elements of the shape [1, 4, 4, 4] do not fit the shape [1, 63]",
    ),
    (
        "two unknowns in a reshape",
        _value(11, [-1, -1]),
        "operations[2]",
        "may not have multiple -1 dimensions",
    ),
    (
        "stated level",
        _do(lambda t: (setattr(t, "feature_level", 1), tensor(t, [1], OperandType.TENSOR_FLOAT16))),
        "featureLevel",
        "needs 3",
    ),
    (
        "subgraph type",
        _operand(7, type=OperandType.SUBGRAPH),
        "operands[7].lifetime",
        "SUBGRAPH cannot have the lifetime CONSTANT_COPY",
    ),
    (
        "pool of a copy",
        _operand(7, location=Location(1, 0, 4)),
        "operands[7].location.poolIndex",
        ", but CONSTANT_COPY must not have a pool",
    ),
    (
        "operation of drivers",
        _do(lambda t: t.operations.append(Operation("OEM_OPERATION", [1], [tensor(t, [1])]))),
        "operations[5]",
        "OEM_OPERATION is defined by one driver alone; netconv cannot check it",
    ),
]
# quantized(): 0 x, 1 filter, 2 bias, 3 y
QUANTIZED = [
    ("scale 0", _operand(0, scale=0.0), "operands[0].scale", "must be positive, got 0.0"),
    (
        "scale not a number",
        _operand(0, scale=float("nan")),
        "operands[0].scale",
        "must be positive, got nan",
    ),
    (
        "scale below float32",
        _operand(0, scale=1e-60),
        "operands[0].scale",
        "must be positive, got",
    ),
    (
        "zero point",
        _operand(0, zero_point=256),
        "operands[0].zeroPoint",
        "must be within 0..255, got 256",
    ),
    (
        "scale of the bias",
        _operand(2, scale=0.2),
        "operations[0].inputs[2]",
        "the scale of the bias must be 0.125, the product of input and filter scales, got 0.2",
    ),
    (
        "zero point of the bias",
        _operand(2, zero_point=1),
        "operands[2].zeroPoint",
        "must have zero point 0, got",
    ),
]
PER_CHANNEL = [
    (
        "no scales",
        _operand(1, channel_quant=None),
        "operands[1].extraParams",
        "needs per-channel scales",
    ),
    (
        "number of scales",
        _operand(1, channel_quant=ChannelQuant(0, (1.0, 1.0))),
        "operands[1].extraParams.scales",
        "a dimension of 3 has 2 scales",
    ),
    (
        "a scale of 0",
        _operand(1, channel_quant=ChannelQuant(0, (1.0, 0.0, 1.0))),
        "operands[1].extraParams.scales",
        "a scale is not positive",
    ),
    (
        "channel beyond the rank",
        _operand(1, channel_quant=ChannelQuant(4, (1.0,))),
        "operands[1].extraParams.channelDim",
        "dimension 4 is outside the rank 4",
    ),
    (
        "another channel",
        _operand(1, channel_quant=ChannelQuant(3, (1.0, 1.0))),
        "operations[0].inputs[1]",
        "must be along dimension 0, got 3",
    ),
    (
        "scale of the bias",
        _operand(2, scale=0.125),
        "operations[0].inputs[2]",
        "must be 0, the product of input and filter scales",
    ),
]
# branches(): 0 condition, 1 x, 2 y, 3 then, 4 else
BRANCHES = [
    (
        "subgraph that is not there",
        _operand(3, subgraph=7),
        "operands[3].location.offset",
        "subgraph 7 does not exist, there are 2",
    ),
    (
        "interface",
        _operand(1, dimensions=[3]),
        "operations[0]",
        "does not match number 0 of the inputs of the then subgraph",
    ),
    (
        "number of inputs",
        _do(lambda t: t.operations[0].inputs.append(1)),
        "operations[0]",
        "2 operands are given for 1 inputs of the then subgraph",
    ),
    (
        "inside a subgraph",
        _do(lambda t: t.referenced[0].operations[0].inputs.pop()),
        "referenced[0].operations[0]",
        "ADD takes 3 inputs, got 2",
    ),
    (
        "circle",
        _do(lambda t: t.referenced[1].add(Operand(OperandType.SUBGRAPH, subgraph=1))),
        "referenced[1]",
        "the subgraph contains itself",
    ),
]
MUTANTS = [
    pytest.param(model, change, place, message, id=f"{model}-{name}")
    for model, mutants in (
        ("network", NETWORK),
        ("quantised", QUANTIZED),
        ("per-channel", PER_CHANNEL),
        ("branches", BRANCHES),
    )
    for name, change, place, message in mutants
]


@pytest.mark.parametrize(("model", "change", "place", "message"), MUTANTS)
def test_a_broken_table_is_found_out(
    model: str, change: Callable[[Table], None], place: str, message: str
) -> None:
    table = MODELS[model]()
    change(table)
    found = validate(table)
    assert any(d.where.path == place and message in d.message for d in found), [
        str(d) for d in found
    ]


def _boxes() -> Table:
    t = Table()
    shapes = [3, 4], [3, 8], [3], [1, 2]
    kinds = [F32, F32, I32, F32]
    inputs = [tensor(t, s, k) for s, k in zip(shapes, kinds, strict=True)]
    y = tensor(t, [3, 8])
    t.operations = [Operation("AXIS_ALIGNED_BBOX_TRANSFORM", inputs, [y])]
    t.inputs, t.outputs = inputs, [y]
    return t


def _hashtable() -> Table:
    t = Table()
    inputs = [tensor(t, [2], I32), constant(t, [1, 5, 7], I32), tensor(t, [3, 4])]
    outputs = [tensor(t, [2, 4]), tensor(t, [2], Q8, scale=1.0)]
    t.operations = [Operation("HASHTABLE_LOOKUP", inputs, outputs)]
    t.inputs, t.outputs = [inputs[0], inputs[2]], outputs
    return t


@pytest.mark.parametrize(
    ("build", "change", "message"),
    [
        (_boxes, _operand(0, dimensions=[3, 5]), "rois must have 4 elements, got 5"),
        (_boxes, _operand(3, dimensions=[1, 3]), "image_info must have 2 elements, got 3"),
        (_hashtable, _operand(2, dimensions=[4, 4]), "3 keys are given for 4 values"),
        (_hashtable, _value(1, [5, 1, 7]), "the keys must be in ascending order"),
    ],
)
def test_sizes_that_the_graph_does_not_declare(
    build: Callable[[], Table], change: Callable[[Table], None], message: str
) -> None:
    table = build()
    assert validate(table) == []
    change(table)
    assert any(message in d.message for d in validate(table))


def test_an_unspecified_dimension_is_any() -> None:
    table = network()
    table.operands[1].dimensions = [1, 0, 8, 4]
    assert validate(table) == []
    table.operands[1].dimensions = [1, 0, 7, 4]
    assert [d.where.path for d in validate(table)][:1] == ["operations[0].outputs[0]"]


@pytest.mark.corpus
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_mutants_of_the_corpus_are_found_out(every: int) -> None:
    """Six ways to break each real table of levels 1 and 2; every one must be an error."""
    survivors = []
    for path in corpus("level1", "level2")[::every]:
        table = read_table(path)
        first, y = table.operations[0], table.operations[0].outputs[0]
        for name, change in {
            "input dropped": lambda t: t.operations[0].inputs.pop(),
            "output of another rank": lambda t, y=y: t.operands[y].dimensions.append(2),
            "output dimension": lambda t, y=y: t.operands[y].dimensions.__setitem__(
                0, t.operands[y].dimensions[0] + 1
            ),
            "output type": lambda t, y=y: setattr(
                t.operands[y], "type", OperandType.TENSOR_QUANT16_SYMM
            ),
            "missing value": lambda t, x=first.inputs[0]: (
                setattr(t.operands[x], "lifetime", Lifetime.NO_VALUE),
                t.inputs.remove(x) if x in t.inputs else None,
            ),
            "index": lambda t: t.operations[0].inputs.__setitem__(0, len(t.operands)),
        }.items():
            mutant = copy.deepcopy(
                Table(table.operands, table.operations, table.inputs, table.outputs)
            )
            change(mutant)
            if not any(d.level == "error" for d in validate(mutant)):
                survivors.append((path.parent.name, first.type, name))
    assert not survivors


def _sample(kind: str, variables: dict[str, OperandType], rank: int) -> Operand:
    concrete = F32 if kind == "any" else variables[kind] if kind in variables else OperandType[kind]
    return Operand(concrete, [2] * rank if concrete.is_tensor else [])


@pytest.mark.parametrize("name", operations())
def test_every_signature_binds(name: str) -> None:
    spec = operations()[name]
    for signature in spec.signatures:
        for row, level in spec.types:
            variables, g = dict(zip(spec.variables, row, strict=True)), Subgraph()
            needed = [a for a in signature.inputs if a.since is None]
            inputs = [g.add(_sample(a.type, variables, (a.rank or (1, 1))[0])) for a in needed]
            outputs = [
                g.add(_sample(a.type, variables, (a.rank or (1, 1))[0]))
                for a in spec.outputs
                if a.since is None
            ]
            binding = bind(Operation(name, inputs, outputs), g)
            assert binding.level <= max(
                level, signature.level, spec.level
            ) and binding.types.keys() == set(spec.variables)
            assert [binding.inputs[a.name] for a in needed] == [
                [i] if a.repeat else i for a, i in zip(needed, inputs, strict=True)
            ]
            assert all(
                binding.inputs[a.name] is None for a in signature.inputs if a.since is not None
            )


def test_signatures_are_distinguished() -> None:
    t = Table()
    x, w, b, y = (
        tensor(t, [1, 4, 4, 1]),
        constant(t, np.ones((1, 2, 2, 1))),
        constant(t, [0.0]),
        tensor(t, [1, 4, 4, 1]),
    )
    one, flag = scalar(t, 1), scalar(t, 0, OperandType.BOOL)
    explicit = bind(Operation("CONV_2D", [x, w, b, one, one, one, one, one, one, one], [y]), t)
    implicit = bind(Operation("CONV_2D", [x, w, b, one, one, one, one, flag, one, one], [y]), t)
    assert (explicit.signature.name, explicit.level) == ("explicit padding", 1)
    assert (implicit.signature.name, implicit.level) == ("implicit padding", 3)
    assert implicit.inputs["nchw"] == flag and explicit.inputs["nchw"] is None
    with pytest.raises(NoMatch, match="takes"):
        bind(Operation("CONV_2D", [x, w, b], [y]), t)


LEVELS = [
    (network, 1, ""),
    (quantized, 1, ""),
    (lambda: quantized(True), 3, "operations[0] CONV_2D"),
    (branches, 4, "referenced"),
]


@pytest.mark.parametrize(("build", "level", "reason"), LEVELS)
def test_levels(build: Callable[[], Table], level: int, reason: str) -> None:
    assert feature_level(build()) == (level, reason)


def test_levels_of_lifted_restrictions() -> None:
    table = quantized()
    filter_ = table.operands[table.operations[0].inputs[1]]
    assert feature_level(table) == (1, "")
    filter_.scale = (
        1.0  # the input's scale is not above input * filter: so AOSP's validator compares
    )
    assert feature_level(table) == (3, "operations[0] CONV_2D")
    t = Table()
    a, b, y = (
        tensor(t, [1, 2], Q8, scale=0.5),
        tensor(t, [1, 2], Q8, scale=0.25),
        tensor(t, [2, 2], Q8, scale=0.5),
    )
    t.operations, t.inputs, t.outputs = (
        [Operation("CONCATENATION", [a, b, scalar(t, 0)], [y])],
        [a, b],
        [y],
    )
    assert validate(t) == [] and feature_level(t) == (3, "operations[0] CONCATENATION")
    t.operands[b].scale = 0.5
    assert feature_level(t) == (1, "")


def test_reading_refuses_the_same_tables_as_android() -> None:
    """Android's own validator checks neither the dimensions of outputs nor the scales of most
    operations, and a table may have no inputs.
    """

    def broken(change: Callable[[Table], object]) -> list[str]:
        table = network()
        change(table)
        loose = [d.message for d in validate(table, strict=False)]
        assert not loose or [d.message for d in validate(table)], (
            "nothing is valid that Android refuses"
        )
        return loose

    assert broken(lambda t: t.inputs.append(t.inputs[0]))
    assert broken(lambda t: t.operations.append(t.operations[-1]))
    assert broken(lambda t: setattr(t.operands[t.inputs[0]], "scale", 0.5))
    assert broken(
        lambda t: t.add(
            Operand(
                OperandType.TENSOR_FLOAT32,
                [1],
                "nobody writes it",
                lifetime=Lifetime.TEMPORARY_VARIABLE,
            )
        )
    )
    assert not broken(lambda t: t.operands[t.outputs[0]].dimensions.__setitem__(0, 7))


def test_the_scale_of_a_product_is_large_enough() -> None:
    t = Table()
    a, b, y = (
        tensor(t, [2], Q8, scale=0.5),
        tensor(t, [2], Q8, scale=0.5),
        tensor(t, [2], Q8, scale=0.25),
    )
    t.operations, t.inputs, t.outputs = [Operation("MUL", [a, b, scalar(t, 0)], [y])], [a, b], [y]
    assert [d.code for d in validate(t, strict=False)] == ["R110"]
    t.operands[y].scale = 0.26
    assert validate(t) == []


def test_all_operations_are_there() -> None:
    assert [names_by_code()[i] for i in (0, 28, 105)] == ["ADD", "TANH", "REVERSE"]
    assert sorted(names_by_code()) == [*range(106), 10000]


def test_large_tables_are_judged_in_linear_time() -> None:
    t = Table()
    t.inputs = [tensor(t, [4])]
    for i in range(5_000):
        t.operations.append(Operation("RELU", [i], [tensor(t, [4])]))
    t.outputs = [5_000]
    assert validate(t) == []


@pytest.mark.corpus
def test_an_lstm_whose_optional_weights_are_inputs_has_three_or_four_gates() -> None:
    """A run may leave them out."""
    for case in corpus():
        if "lstm2" in str(case) and "V1_0" in str(case):
            table = read_table(case)
            scratch = table.operands[table.operations[0].outputs[0]]
            assert [d for d in validate(table) if d.level == "error"] == [], case
            if table.operations[0].inputs[1] in table.inputs:
                scratch.dimensions[-1] = (
                    scratch.dimensions[-1] * 3 // 4
                    if scratch.dimensions[-1] % 3
                    else scratch.dimensions[-1] * 4 // 3
                )
                assert [d for d in validate(table) if d.level == "error"] == [], case
