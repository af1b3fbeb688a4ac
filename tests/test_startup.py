"""Modules that the command line does not import until they are used."""

from __future__ import annotations

import tflite

from converter.formats.tflite.options import fields_of
from converter.formats.tflite.schema import schema
from support import run_python


def test_unused_modules_are_loaded_when_they_are_used() -> None:
    """A module is executed by its first use, not by its imports, and then is an ordinary one."""
    code = """
import sys
from converter.commands.startup import prepare
prepare()
import csv
import csv as again
from shutil import which
import fractions, pickle
assert not any(type(sys.modules[n]).__name__ == "module" for n in ("csv", "fractions", "pickle"))
assert fractions.Fraction(1, 2) * 2 == 1 and type(fractions).__name__ == "module"
assert pickle.loads(pickle.dumps([1])) == [1]
assert not hasattr(csv, "__module__") and not hasattr(csv, "absent") and again.reader
from csv import writer
assert csv.__spec__.loader.get_code("csv") is not None
print("right")
"""
    assert run_python(code).split() == ["right"]


def test_versions_of_packages_need_no_reader_of_their_metadata() -> None:
    code = """
import sys
from converter.commands.startup import prepare
prepare()
import onnx
from importlib.metadata import PackageNotFoundError, requires, version
assert onnx.__version__ == version("onnx") and version("onnx-ir").count(".") == 2
assert requires("onnx")
try:
    version("no-such-package")
except PackageNotFoundError as e:
    print("right")
"""
    assert run_python(code).split() == ["right"]


def test_tables_of_a_schema_are_imported_alone() -> None:
    code = """
import sys
from converter.commands.startup import prepare
prepare()
from converter.formats.tflite.schema import schema
assert schema.TensorType.INT8 == 9 and schema.Conv2DOptionsAddStrideW
print(*(n for n in sys.modules if n.startswith("tflite.")))
"""
    assert run_python(code).split() == ["tflite.TensorType", "tflite.Conv2DOptions"]


def test_a_schema_has_all_names_of_its_package() -> None:
    """Each name is found in the module of its table, with the functions that write the table."""
    names = vars(tflite)
    wider = {"BuiltinOperator", "BuiltinOptions2"}  # with values of newer versions
    count = 0
    for name, found in names.items():
        module = str(getattr(found, "__module__", "")).removeprefix("tflite.")
        if module != "utils" and name.startswith(module) and module in names:
            assert getattr(schema, name) is found or name in wider, name
            count += 1
            if isinstance(found, type):
                start = f"{name}Add"
                assert fields_of(name) == tuple(
                    n[len(start) :] for n in names if n[: len(start)] == start
                )
    assert count > 800
    assert not hasattr(schema, "SomethingOptions") and not hasattr(
        schema, "Conv2DOptionsAddMissing"
    )
