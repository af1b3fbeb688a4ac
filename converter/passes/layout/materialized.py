"""The stored forms of each value, and conversions between them: at most one value per order of
axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.graph import channels_last
from converter.graph.build import Builder
from converter.graph.infer import forget_known, rank_of
from converter.passes.layout import axes
from converter.passes.layout.axes import Dim, Perm
from converter.passes.layout.groups import is_constant
from converter.passes.layout.rules import dims_of

Forms = dict[Perm, ir.Value]


class Stored:
    """The stored forms of values.

    `forms[v]` maps an order of v's axes to the value of the new graph that holds v in that order.
    The first is the form in which it is produced.
    """

    def __init__(self) -> None:
        self._forms: dict[ir.Value, Forms] = {}
        self._views: dict[
            ir.Value, tuple[ir.Value, Perm]
        ] = {}  # a value that is a permutation of another one
        self._raised: dict[tuple[ir.Value, int], Forms] = {}
        self.names: dict[
            ir.Value, ir.Value
        ] = {}  # a value that will be removed -> the one that takes its name

    def forms(self, value: ir.Value) -> Forms:
        """Return the forms of a value by their axis orders."""
        if value in self._views:
            root, perm = self._views[value]
            return {axes.through_transpose(p, perm): v for p, v in self.forms(root).items()}
        found = self._forms.get(value)
        if found is None:
            found = self._forms[value] = {axes.identity(rank_of(value) or 0): value}
        return found

    def keep(self, value: ir.Value, perm: Perm) -> None:
        """Record that the value itself is now stored in `perm`."""
        if perm != axes.identity(len(perm)):
            dims = list(value.shape) if value.shape is not None else [None] * len(perm)
            value.shape = ir.Shape([dims[a] for a in perm])
            forget_known(value)
        self._forms[value] = {perm: value}

    def replace(self, value: ir.Value, perm: Perm, made: ir.Value) -> None:
        """Record that `made`, stored in `perm`, replaces the value and takes its name."""
        self._forms[value] = {perm: made}
        self.names[value] = made

    def view(self, value: ir.Value, source: ir.Value, perm: Perm) -> None:
        """Record that the value is Transpose(source, perm): the same stored data with permuted
        axes.
        """
        root, before = self._views.get(source, (source, axes.identity(len(perm))))
        self._views[value] = root, tuple(before[a] for a in perm)

    def form(self, value: ir.Value, perm: Perm, b: Builder) -> ir.Value:
        """Return the value in the order `perm`; convert it with `b` if necessary."""
        if value in self._views:
            root, transposed = self._views[value]
            exists = list(self.forms(root).values())
            made = self.form(root, tuple(transposed[a] for a in perm), b)
            if made not in exists and perm == axes.identity(len(perm)):
                self.names.setdefault(value, made)
            return made
        forms = self.forms(value)
        if perm not in forms:
            made = convert(forms, perm, b)
            if (
                value not in forms.values()
                and made not in forms.values()
                and perm == axes.identity(len(perm))
            ):
                self.names.setdefault(value, made)
            forms[perm] = made
        return forms[perm]

    def canonical(self, value: ir.Value, b: Builder) -> ir.Value:
        """Return a value in the axis order of ONNX; it is transposed if no such form exists."""
        rank = rank_of(value)
        return value if rank is None else self.form(value, axes.identity(rank), b)

    def note_file_axes(self) -> None:
        """Note the order of axes that values had in the file, which is the canonical one here."""
        for forms in self._forms.values():
            for perm, value in forms.items():
                if perm != axes.identity(len(perm)):
                    value.meta[channels_last.FILE_AXES] = perm

    def operand(self, value: ir.Value, perm: Perm, b: Builder) -> ir.Value:
        """Return an operand that broadcasts with values stored in `perm`: leading axes of size 1
        are added before it is permuted.
        """
        rank, wide = rank_of(value), len(perm)
        if rank == wide:
            return self.form(value, perm, b)
        dims = dims_of(value)
        if rank == 0 or perm == axes.identity(wide) or all(d == 1 for d in dims):
            return self.canonical(value, b)
        forms = self._raised.get((value, wide))
        if forms is None:
            forms = self._raised[value, wide] = {}
        if perm not in forms:
            forms[perm] = self._raise(value, perm, b)
        return forms[perm]

    def _raise(self, value: ir.Value, perm: Perm, b: Builder) -> ir.Value:
        narrow = self.canonical(value, b)
        dims: list[Dim] = [*[1] * (len(perm) - len(dims_of(narrow))), *dims_of(narrow)]
        if is_constant(narrow) and narrow.dtype != ir.DataType.STRING:
            assert narrow.const_value is not None
            return b.const(
                narrow.const_value.numpy().reshape([int(d or 0) for d in dims]).transpose(perm),
                str(narrow.name),
            )
        target = _target(dims, perm)
        if axes.moves_nothing(axes.identity(len(perm)), perm, dims) and target is not None:
            return b.Reshape(narrow, b.const(target, "shape"))
        lifted = b.Unsqueeze(narrow, list(range(len(perm) - (rank_of(narrow) or 0))))
        return b.Transpose(lifted, perm=perm)


def convert(forms: Forms, perm: Perm, b: Builder) -> ir.Value:
    """Return `perm` from the form that is cheapest to convert: by a view of a constant, by a
    Reshape if only axes of size 1 move, else by a Transpose.
    """
    stored, source = next(iter(forms.items()))
    dims = canonical_dims(stored, source)
    if is_constant(source) and source.dtype != ir.DataType.STRING:
        assert source.const_value is not None
        return b.const(
            source.const_value.numpy().transpose(axes.between(stored, perm)), str(source.name)
        )
    for order, value in forms.items():
        target = _target(dims, perm)
        if axes.moves_nothing(order, perm, dims) and target is not None:
            if [dims[a] for a in order] == [dims[a] for a in perm]:
                return value
            return b.Reshape(value, b.const(target, "shape"), name=str(source.name))
    return b.Transpose(source, perm=axes.between(stored, perm), name=str(source.name))


def canonical_dims(stored: Perm, value: ir.Value) -> list[Dim]:
    """Return the sizes of a value in the axis order of ONNX, from those in the `stored` order."""
    dims = dims_of(value) if value.shape is not None else [None] * len(stored)
    return [dims[i] for i in axes.inverse(stored)]


def _target(dims: Sequence[Dim], perm: Perm) -> list[int] | None:
    """Return the shape operand of a Reshape; None if more than one dimension is unknown."""
    stored = [dims[a] for a in perm]
    if sum(not isinstance(d, int) for d in stored) > 1 or 0 in stored:
        return None
    return [d if isinstance(d, int) else -1 for d in stored]
