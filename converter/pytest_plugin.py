"""Fixtures of pytest for projects that have netconv installed.

assert_same_model(reference, candidate, **options): see converter.testing.assert_same
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_same_model() -> Callable[..., Any]:
    """Compare two models (files, or models in memory), and fail with the text of the comparison."""
    from converter.testing import assert_same

    return assert_same
