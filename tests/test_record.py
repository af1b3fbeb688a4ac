"""Records and comparable records against dataclasses with the same fields."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from converter.errors import Diagnostic, Where
from converter.record import comparable, record, structure


class _Fields:
    """The fields of all classes below."""

    first: int
    second: str = "b"
    third: list[int] = field(default_factory=list)


def _made(decorator: Any) -> Any:
    return decorator(type("Made", (), {k: v for k, v in vars(_Fields).items() if k != "__dict__"}))


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "x"), {}),
    ((1, "x", [2]), {}),
    ((), {"first": 1}),
    ((1,), {"third": [5], "second": "c"}),
    ((), {}),
    ((), {"second": "c"}),
    ((1,), {"first": 2}),
    ((1,), {"fourth": 2}),
    ((), {"fourth": 2}),
    ((1, "x", [2], 3), {}),
]


@pytest.mark.parametrize("decorator", [record, comparable])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_record_takes_the_arguments_of_a_dataclass(decorator: Any, call: Any) -> None:
    args, given = call
    try:
        expected = vars(_made(dataclass)(*args, **given))
    except TypeError:
        with pytest.raises(TypeError, match=r"Made\(first, second, third\)"):
            _made(decorator)(*args, **given)
    else:
        assert vars(_made(decorator)(*args, **given)) == expected


def test_records_compare_by_identity_and_comparable_ones_by_content() -> None:
    kept, compared = _made(record), _made(comparable)
    assert kept(1) != kept(1)
    one, same, other = (compared(n, third=()) for n in (1, 1, 2))
    assert one == same and hash(one) == hash(same) and len({one, same, other}) == 2
    assert one != other and one != kept(1) and one != 1


def test_comparable_ones_are_as_frozen_dataclasses_and_structures_as_others() -> None:
    """Their repr, copies and changed copies are the same; only structures can be changed."""
    for decorator, like in ((comparable, dataclass(frozen=True)), (structure, dataclass)):
        made, expected = _made(decorator)(1, third=[2]), _made(like)(1, third=[2])
        assert repr(made) == repr(expected)
        assert copy.deepcopy(made) == made and replace(made, first=3).first == 3
        assert replace(made, first=3) != made and made != expected
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'first'"):
        _made(comparable)(1).first = 2
    changed = _made(structure)(1)
    changed.first = 2
    assert changed == type(changed)(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(changed)


def test_diagnostics_reach_other_processes() -> None:
    found = Diagnostic("X203", "too large", where=Where("a.onnx", layer="y"), evidence=("1",))
    assert pickle.loads(pickle.dumps(found)) == found
