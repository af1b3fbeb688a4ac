"""The inverse of Result.as_json: a stored comparison as the values it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from converter.commands.verify.compare import Difference
from converter.commands.verify.result import Finding, Native, Output, Result, Tensor

_NUMBERS = {f.name for f in fields(Difference) if f.type == "float"}


def result_of(data: Mapping[str, Any]) -> Result:
    """KeyError or TypeError when `data` does not follow schemas/report/verify.json."""
    own = _only(Result, data)
    return Result(
        **{
            **own,
            "outputs": _outputs(data),
            "tensors": tuple(
                Tensor(**{**_only(Tensor, t), "own": _maybe(t["own"]), "total": _maybe(t["total"])})
                for t in data["tensors"]
            ),
            "findings": tuple(_finding(f) for f in data["findings"]),
            "native": tuple(
                Native(**{**_only(Native, n), "outputs": _outputs(n)})
                for n in data.get("native", ())
            ),
            "models": (str(data["models"][0]), str(data["models"][1])),
        }
    )


def _outputs(data: Mapping[str, Any]) -> tuple[Output, ...]:
    return tuple(
        Output(
            **{
                **_only(Output, o),
                "difference": _difference(o["difference"]),
                "broken": tuple(o["broken"]),
            }
        )
        for o in data["outputs"]
    )


def _finding(data: Mapping[str, Any]) -> Finding:
    own = _only(Finding, data)
    return Finding(
        **{
            **own,
            "own": _difference(data["own"]),
            "inherited": float(data["inherited"]),
            "where": (data["where"][0], data["where"][1]),
        }
    )


def _only(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a class; lists as tuples."""
    names = {f.name for f in fields(kind)}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in names}


def _maybe(data: Mapping[str, Any] | None) -> Difference | None:
    return None if data is None else _difference(data)


def _difference(data: Mapping[str, Any]) -> Difference:
    """Infinities and NaN are stored as texts."""
    values: dict[str, Any] = {
        k: float(v) if k in _NUMBERS else v for k, v in _only(Difference, data).items()
    }
    return Difference(**values)
