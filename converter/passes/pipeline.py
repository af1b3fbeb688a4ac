"""Passes as a list: what happens to a graph on its way into a format, in order.

Each format has a `PIPELINE` of such passes, all with the same signature: they change a model in
place and share a Context. Like the passes of onnx_ir, one may have a pre-condition (`requires`) and
a post-condition (`ensures`); what does not hold is a refusal. `observing` shows every pass that
runs to somebody who wants to see what it changes (`netconv explain pipeline`).
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
from converter.graph.record import record
from converter.mapping.lifting import refuse

if TYPE_CHECKING:
    from converter.mapping.target import Target


@record
class Context:
    """What the passes of one conversion share: the network that is written, whose graph stays as it
    is, the layout of inputs and outputs that was asked for, and the warnings so far.
    """

    network: Network
    io_layout: str = ""
    notes: list[Diagnostic] = field(default_factory=list)

    @property
    def attempt(self) -> str:
        """Which of several attempts this is, of a format that tries versions; "" where it does
        not.
        """
        return ""


C = TypeVar("C", bound=Context, contravariant=True)


def _nothing(model: ir.Model, context: Any) -> Iterable[Diagnostic]:
    return ()


def _always(context: Any) -> bool:
    return True


@record
class Pass(Generic[C]):
    """One change of a graph, in place. `effect` says in a line what it does; `applies` whether a
    conversion has it; `requires` and `ensures` give what does not hold before and after it.
    """

    name: str
    effect: str
    call: Callable[[ir.Model, C], object]
    applies: Callable[[C], bool] = _always
    requires: Callable[[ir.Model, C], Iterable[Diagnostic]] = _nothing
    ensures: Callable[[ir.Model, C], Iterable[Diagnostic]] = _nothing

    def __call__(self, model: ir.Model, context: C) -> None:
        """UnsupportedError where a condition does not hold."""
        refuse([*self.requires(model, context)])
        self.call(model, context)
        refuse([*self.ensures(model, context)])


Observer = Callable[["Pass[Any]", ir.Model, Context], AbstractContextManager[None]]


def _unobserved(each: Pass[Any], model: ir.Model, context: Context) -> AbstractContextManager[None]:
    return nullcontext()


_OBSERVER: ContextVar[Observer] = ContextVar("observer", default=_unobserved)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Every pass that runs inside is run within what `observer` gives for it."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def run_passes(passes: Sequence[Pass[C]], model: ir.Model, context: C) -> None:
    """Runs the passes that apply, in order. UnsupportedError where a condition of one does not
    hold; the model is half changed then.
    """
    observer = _OBSERVER.get()
    for each in passes:
        if each.applies(context):
            with observer(each, model, context):
                each(model, context)


def change(
    name: str, effect: str, of: Callable[[ir.Model], object], **conditions: Any
) -> Pass[Any]:
    """A pass that is a function of the model alone; `conditions` are other fields of Pass."""
    return Pass(name, effect, lambda model, _: of(model), **conditions)


def check_target(target: Target) -> Pass[Context]:
    """The pre-condition of a whole pipeline."""
    return Pass(
        "check-target",
        "Refuse types and networks that the format does not have, whatever the operators are",
        lambda model, _: None,
        requires=lambda model, _: target.refusals(model),
    )


def check_static_shapes() -> Pass[Context]:
    """What formats of static shapes demand as soon as all shapes are known that will be."""
    from converter.mapping.target import dynamic_values

    return Pass(
        "check-static-shapes",
        "Refuse tensors whose sizes are not known",
        lambda model, _: None,
        requires=lambda model, _: dynamic_values(model),
    )
