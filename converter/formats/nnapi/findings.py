"""Diagnostics about one subgraph of a table, with their JSON paths."""

from __future__ import annotations

from converter.errors import Diagnostic, Level, Where
from converter.formats.nnapi.table import Subgraph


class Findings(list[Diagnostic]):
    """The diagnostics of one subgraph, whose JSON path in `file` begins with `prefix`. Unless
    `strict`, only errors that Android's own validator reports are kept.
    """

    def __init__(
        self, subgraph: Subgraph, file: str = "", prefix: str = "", strict: bool = True
    ) -> None:
        super().__init__()
        self.subgraph, self.strict = subgraph, strict
        self._file, self._prefix = file, prefix

    def add(
        self,
        place: str,
        message: str,
        index: int | None = None,
        *,
        code: str = "R105",
        level: Level = "error",
        kind: str = "",
        evidence: tuple[str, ...] = (),
        ours: bool = False,
    ) -> None:
        """Add a finding at `place`, a JSON path within the subgraph.

        `index` is the operand concerned, `kind` the type of the operation. R105 is about the
        structure of the graph, R110 about a value. `ours`: Android does not report this error.
        """
        if ours and not self.strict:
            return
        name = "" if index is None else self.subgraph.operands[index].name
        where = Where(self._file, path=self._prefix + place, layer=name, kind=kind)
        self.append(Diagnostic(code, message, level, where, evidence))

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self if d.level == "error"]
