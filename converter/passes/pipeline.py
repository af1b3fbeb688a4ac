"""Passes as a list: the rewrites of a graph before it is written to a format, in order.

Each format has a `PIPELINE` of such passes, all with the same signature: they change a model in
place and share a Context. Like the passes of onnx_ir, a pass may have a pre-condition (`requires`)
and a post-condition (`ensures`), whose violation refuses the model. `observing` calls an observer
around every pass (`netconv explain pipeline`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import onnx_ir as ir

from converter.errors import Diagnostic
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.record import record

if TYPE_CHECKING:
    from converter.mapping.target import Target


@record
class Context:
    """The state that the passes of one conversion share: the network that is written, whose graph
    is not changed, the requested layout of inputs and outputs, the warnings so far, and whether
    outputs of dynamic length may have as many rows as there may be (`padded`).
    """

    network: Network
    io_layout: str = ""
    notes: list[Diagnostic] = field(default_factory=list)
    padded: bool = False

    @property
    def attempt(self) -> str:
        """Return the current attempt of a format that tries several versions; "" for other
        formats.
        """
        return ""


C = TypeVar("C", bound=Context, contravariant=True)


def _nothing(model: ir.Model, context: Any) -> Iterable[Diagnostic]:
    return ()


def _always(context: Any) -> bool:
    return True


@record
class Pass(Generic[C]):
    """One change of a graph, in place.

    `effect` describes it in one line; `applies` returns whether a conversion needs it; `requires`
    and `ensures` return violations before and after it.
    """

    name: str
    effect: str
    call: Callable[[ir.Model, C], object]
    applies: Callable[[C], bool] = _always
    requires: Callable[[ir.Model, C], Iterable[Diagnostic]] = _nothing
    ensures: Callable[[ir.Model, C], Iterable[Diagnostic]] = _nothing

    def __call__(self, model: ir.Model, context: C) -> None:
        """Run the pass; raise UnsupportedError if a condition is violated."""
        refuse([*self.requires(model, context)])
        self.call(model, context)
        refuse([*self.ensures(model, context)])


Observer = Callable[["Pass[Any]", ir.Model, Context], AbstractContextManager[None]]


def _unobserved(each: Pass[Any], model: ir.Model, context: Context) -> AbstractContextManager[None]:
    return nullcontext()


_OBSERVER: ContextVar[Observer] = ContextVar("observer", default=_unobserved)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Run every pass inside within the context manager that `observer` returns for it."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def run_passes(passes: Sequence[Pass[C]], model: ir.Model, context: C) -> None:
    """Run the passes that apply, in order.

    Raise UnsupportedError if a condition is violated; the model is then partially rewritten.
    """
    observer = _OBSERVER.get()
    for each in passes:
        if each.applies(context):
            with observer(each, model, context):
                each(model, context)


def change(
    name: str, effect: str, of: Callable[[ir.Model], object], **conditions: Any
) -> Pass[Any]:
    """Return a pass that is a function of the model alone; `conditions` are other fields of
    Pass.
    """
    return Pass(name, effect, lambda model, _: of(model), **conditions)


def check_target(target: Target) -> Pass[Context]:
    """Return the pre-condition of a whole pipeline."""
    return Pass(
        "check-target",
        "Refuse types and networks that the format does not support, independent of operators",
        _nothing,
        requires=lambda model, _: target.refusals(model),
    )


def check_static_shapes() -> Pass[Context]:
    """Return the check of formats with static shapes, for use after all inferable shapes are
    known.
    """
    from converter.mapping.target import dynamic_values

    return Pass(
        "check-static-shapes",
        "Refuse tensors of dynamic shape",
        _nothing,
        requires=lambda model, _: dynamic_values(model),
    )
