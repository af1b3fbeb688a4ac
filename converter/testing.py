"""Comparison of models in tests."""

from __future__ import annotations

from typing import Any

from converter.functions import Result, verify


def assert_same(reference: Any, candidate: Any, **options: Any) -> Result:
    """Raise AssertionError, with the text of `netconv verify`, if two models compute different
    outputs. `options` are those of netconv.verify.
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    result = verify(reference, candidate, **options)
    if not result.passed:
        raise AssertionError(f"the models differ\n{result}")
    return result


__all__ = ["assert_same"]
