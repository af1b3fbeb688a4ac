"""Numbers: two models on the same inputs, compared tensor by tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from converter.diagnostics import Diagnostic
from converter.errors import NothingComparedError
from converter.verify.result import Result

if TYPE_CHECKING:
    from converter.model import Model


def verify(reference: Model, candidate: Model, data: Any = None, *, rtol: float = 1e-4, atol: float = 1e-5) -> Result:
    """Runs both models on `data` (arrays by input name) and compares the outputs that both have."""
    feeds = data or {i.name: np.random.default_rng(0).random([d if isinstance(d, int) else 1 for d in i.shape or ()]) for i in reference.inputs}
    a, b = reference.run(feeds), candidate.run(feeds)
    common = [n for n in a if n in b]
    if not common:
        raise NothingComparedError(Diagnostic("N402", "the models have no output in common"))
    worst = max((float(np.max(np.abs(a[n] - b[n]), initial=0.0)) for n in common), default=0.0)
    return Result(all(np.allclose(a[n], b[n], rtol, atol, equal_nan=True) for n in common), worst)


__all__ = ["Result", "verify"]
