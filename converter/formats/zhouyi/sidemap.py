"""NAME.map.json next to a written file: the names that the format could not carry, so that reading
restores them.

    {"tensors": {"name in the file": "name in the source"}}

It only contains inputs and outputs of the graph. A file without such names gets no map.
"""

from __future__ import annotations

import json
from pathlib import Path

from converter.errors import ReadError
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.io.files import Output, open_side_file
from converter.io.strict_json import note

SUFFIX = ".map.json"


def write_map(renamed: dict[str, str], out: Output) -> None:
    """Write the map of renamed inputs and outputs; `renamed` maps names in the file to public
    names. An existing map is replaced, so that it is not outdated.
    """
    if renamed or out.place(SUFFIX).is_file():
        with out.open(SUFFIX) as f:
            f.write(json.dumps({"tensors": renamed}, indent=1, ensure_ascii=False).encode())


def restore_names(model: Network, path: Path) -> None:
    """Give inputs and outputs their public names back; a map that cannot be read is as good as
    none.
    """
    try:
        file = open_side_file(path, path.with_suffix(SUFFIX).name)
    except ReadError:
        return
    found = note(file.bytes.tobytes(), {"tensors": {str: str}}) if file is not None else None
    names = found.get("tensors", {}) if found else {}
    for value in [*model.ir.graph.inputs, *model.ir.graph.outputs]:
        if public_name(value) in names:
            set_public_name(value, names[public_name(value)])
