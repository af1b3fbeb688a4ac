"""The indexes by which a conversion finds the modules of the rows that it uses."""

from __future__ import annotations

import pytest

import row_index

PACKAGES = list(row_index.packages())


@pytest.mark.parametrize("package", PACKAGES)
def test_an_index_names_the_rows_that_its_modules_have(package: str) -> None:
    written = row_index.file_of(package).read_text(encoding="utf-8")
    assert written == row_index.text_of(package), "`make index` writes the index anew"


def test_all_tables_have_an_index() -> None:
    tables = {p for p in row_index.CONVERTER.rglob("rules") if p.is_dir()}
    assert {row_index.file_of(p).parent for p in PACKAGES} > tables
