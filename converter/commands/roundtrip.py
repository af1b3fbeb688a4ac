"""Convert there and back: three verdicts on one conversion (bytes, structure, numbers), and the
fields that were normalized on the way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converter import formats
from converter.commands import diff, file_diff
from converter.commands.convert import growth
from converter.commands.diff import Change
from converter.commands.options.convert import Convert
from converter.commands.options.verify import Verify
from converter.commands.verify import compare
from converter.commands.verify.align import align
from converter.commands.verify.result import Result
from converter.errors import Diagnostic
from converter.formats import model_files
from converter.io.growth import MaxOutput, measured

SHOWN = 3


@dataclass(frozen=True)
class Trip:
    """The result of a round trip. `normalized` are fields of the file whose text has changed,
    `changes` differences of the graph.

    `renamed` maps inner tensors to their new names; `numbers` is the comparison of the model with
    the one read back.
    """

    file: str
    via: str
    same_bytes: bool
    normalised: tuple[str, ...]
    changes: tuple[Change, ...]
    renamed: dict[str, str]
    numbers: Result
    notes: tuple[Diagnostic, ...]

    @property
    def same_numbers(self) -> bool:
        return self.numbers.passed

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "file": self.file,
            "via": self.via,
            "bytes": {"same": self.same_bytes, "normalised": list(self.normalised)},
            "structure": {
                "same": not self.changes,
                "changes": [c.as_json() for c in self.changes],
                "renamed": self.renamed,
            },
            "numbers": self.numbers.as_json(),
        }

    def lines(self, verbosity: int = 0) -> Iterator[str]:
        """Yield one line; with verbosity every field and change as well."""
        merged, split = (
            sum(c.sign == "-" for c in self.changes),
            sum(c.sign == "+" for c in self.changes),
        )
        altered = len(self.changes) - merged - split
        parts = [
            f"{n} {what}"
            for n, what in ((merged, "gone"), (split, "new"), (altered, "altered"))
            if n
        ]
        bytes_ = (
            "bytes: equal"
            if self.same_bytes
            else f"bytes: different ({len(self.normalised)} fields normalized)"
            if self.normalised
            else "bytes: different"
        )
        distances = [o.difference.ulp for o in self.numbers.outputs]
        ulp = f" (max {max(distances):.0f} ulp)" if distances else ""
        structure_ = f"structure: different ({', '.join(parts)})" if parts else "structure: equal"
        names = f"  {len(self.renamed)} internal names changed" if self.renamed else ""
        yield (
            f"{Path(self.file).name}  via {self.via}  {bytes_}  {structure_}  "
            "numbers: "
            f"{'equal' if self.same_numbers else 'DIFFERENT'}{ulp}{names}"
        )
        if verbosity > 0:
            yield from (f"  normalized {n}" for n in self.normalised)
            yield from (f"  {line}" for c in self.changes for line in c.lines())
            yield from (f"  renamed {a} to {b}" for a, b in self.renamed.items())
        if not self.same_numbers:
            from converter.commands.verify.text import lines

            yield from (f"  {line}" for line in lines(self.numbers))


def roundtrip(path: Path, via: str, seed: int = 0, limit: MaxOutput | None = None) -> Trip:
    """Read `path`, write it as `via`, read that, write it in the first format again, and
    compare.
    """
    warned: list[Diagnostic] = []
    middle = formats.parse_flavor(via)
    formats.demand_readable(Path(formats.suffix(middle)), middle, "--via")
    model = model_files.load(path)
    own = formats.get(model.format)
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        there = Path(folder) / "there" / f"{path.stem}{formats.suffix(middle)}"
        back = Path(folder) / "back" / path.name
        there.parent.mkdir()
        back.parent.mkdir()
        grown = growth(path, Convert(), warned, limit=limit)
        with measured(there.parent, grown):
            notes = [*model.notes, *model_files.save(model, there, via), *warned]
        between = model_files.load(there, middle.format)
        notes += model_files.save(between, back, own.name)
        returned = model_files.load(back, own.name)
        same, normalised = file_diff.compare(path, back)
        changes = diff.diff(model, returned)
        found = align(model, returned)
        renamed = {r: c for r, c in found.pairs.items() if r != c}
        names = str(path), f"{path.name} via {via}"
        how = Verify(seed=seed, names=names, native="off")
        numbers = compare(model, returned, how)
        return Trip(
            str(path), via, same, tuple(normalised), tuple(changes), renamed, numbers, tuple(notes)
        )
