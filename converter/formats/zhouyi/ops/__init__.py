"""The rows: canonical operators <-> layer types of Zhouyi Compass IR, by theme."""

from __future__ import annotations

from converter.formats.zhouyi.ops import arithmetic, moving, reducing, windows
from converter.mapping.table import Table

TABLE = Table([*arithmetic.ROWS, *windows.ROWS, *reducing.ROWS, *moving.ROWS])
