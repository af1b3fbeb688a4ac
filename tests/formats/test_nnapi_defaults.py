"""Arguments that an operation may leave out have the defaults of the specification."""

from __future__ import annotations

from dataclasses import replace

import pytest

from converter.formats.nnapi.operations import bind, operations
from converter.formats.nnapi.rules import TABLE
from converter.mapping.rules import Rule
from laws.nnapi import NNAPIAdapter
from test_mapping_laws import lowered, made, normal, reading

ADAPTER = NNAPIAdapter()
ROWS = [
    pytest.param(r, id=f"{i}-{r.op}={r.kind}")
    for i, r in enumerate(TABLE.rules)
    if ADAPTER.has_sample(r) and not r.lower_only
]


@pytest.mark.parametrize("rule", ROWS)
def test_an_argument_that_is_left_out_has_its_default(rule: Rule) -> None:
    s = next(lowered(rule, ADAPTER))
    operation = s.file.operations[s.own]
    binding = bind(operation, s.file)
    arguments = binding.signature.inputs
    if len(arguments) != len(operation.inputs):
        return
    while arguments and arguments[-1].default is not None:
        index = operation.inputs[len(arguments) - 1]
        found = s.file.operands[index].array().reshape(-1)[0]
        if found != arguments[-1].default:
            return
        full = reading(ADAPTER, s)
        rule.lift(full)
        arguments = arguments[:-1]
        operation = replace(operation, inputs=operation.inputs[:-1])
        s.file.operations[s.own] = operation
        least = reading(ADAPTER, s)
        rule.lift(least)
        (attrs, inputs), (expected, given) = normal(least.node), normal(full.node)
        assert (attrs, [*map(made, inputs)]) == (expected, [*map(made, given)])


def test_there_are_defaults() -> None:
    named = [a for o in operations().values() for s in o.signatures for a in s.inputs]
    assert sum(a.default is not None for a in named) > 10
