"""Records and comparable records against dataclasses with the same fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from converter.record import comparable, record


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
