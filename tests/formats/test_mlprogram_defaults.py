"""Defaults of parameters that a program leaves out, compared with those of coremltools."""

from __future__ import annotations

from typing import Any

import pytest

from converter.formats.coreml.mlprogram.rules import TABLE
from converter.mapping.codecs import PLAIN, Codec, codec_of
from converter.mapping.fields import MISSING, Attr, RequireKey
from converter.mapping.rules import Rule

ops = pytest.importorskip("coremltools.converters.mil.mil.ops.registry").SSAOpRegistry
ROWS = [pytest.param(r, id=f"{i}-{r.op}={r.kind}") for i, r in enumerate(TABLE.rules)]


def defaults_of(kind: str) -> list[dict[str, Any]]:
    """The defaults of an operation in each operation set that defines it anew."""
    found = []
    for cls in dict.fromkeys(ops.core_ops.get(kind, {}).values()):
        try:
            inputs = cls.default_inputs(cls.__new__(cls))
        except Exception:  # those that depend on the operation's own inputs
            continue
        found.append(dict(inputs._default_inputs))
    return found


def stated(rule: Rule) -> dict[str, tuple[Any, Codec]]:
    """Return the keys of a row with their defaults, in the operator's terms."""
    found = {}
    for f in rule.fields:
        if isinstance(f, Attr) and f.default is not MISSING and f.default is not None:
            found[f.key] = f.default, codec_of(f.kind, PLAIN)
        elif isinstance(f, RequireKey) and f.absent:
            found[f.key] = f.value, codec_of(f.kind, PLAIN)
    return found


@pytest.mark.parametrize("rule", ROWS)
def test_defaults_are_those_of_coremltools(rule: Rule) -> None:
    for key, (own, codec) in stated(rule).items():
        theirs = [d[key] for d in defaults_of(rule.kind) if d.get(key) is not None]
        assert [codec.lift(t) == own for t in theirs] == [True] * len(theirs), (key, own, theirs)


def test_there_are_defaults() -> None:
    known = [defaults_of(r.kind) for r in TABLE.rules if stated(r)]
    assert sum(map(bool, known)) > 10
