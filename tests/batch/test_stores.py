"""Results in a store: after any failing request, readers find the old files, the new ones, or no
model, and nothing is lost.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import converter
from batch.models import small
from converter.cli import app, console
from converter.commands.batch import staging
from converter.errors import ConverterError, ExitCode
from converter.io import atomic

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install '.[batch]'")

REQUESTS = {"info", "ls", "find", "isfile", "isdir", "exists", "makedirs", "cp_file", "rm_file"}
REQUESTS |= {"rm", "put_file", "get_file", "cat_file", "pipe_file"}
FORMS = {
    "openvino": "net.xml",
    "zhouyi": "net.txt",
    "nnapi": "net.nnapi.json",
    "onnx+external": "net.onnx",
    "onnx": "net.onnx",
    "mlprogram": "net.mlpackage",
}
MOST = 200  # requests for one result at the most
Listing = dict[str, bytes]


class Refused(Exception):
    """Drivers raise families of their own."""


class Store:
    """A store in memory that refuses the request `number`, and all that follow unless `once`;
    `after` is called after each that is answered. `effect`: a refused request is done all the same.
    """

    def __init__(self, number: int = 0, once: bool = True, effect: bool = False) -> None:
        self.real = fsspec.filesystem("memory")
        self.number, self.once, self.effect = number, once, effect
        self.count = 0
        self.after: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name not in REQUESTS:
            return real

        def request(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            failing = self.count == self.number or (0 < self.number < self.count and not self.once)
            if failing and not (self.effect and self.count == self.number):
                raise Refused("503 Slow Down")
            answer = real(*arguments, **keywords)
            self.after()
            if failing:
                raise Refused("500 Internal Error")
            return answer

        return request


@pytest.fixture(autouse=True)
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The folders of an old and of a new result in a format; all their files differ."""
    known: dict[str, tuple[Path, Path]] = {}

    def of(form: str) -> tuple[Path, Path]:
        if form not in known:
            base = tmp_path_factory.mktemp("made")
            for name, scale in (("old", 0.1), ("new", 0.9)):
                (base / name).mkdir()
                source = small(base / f"{name}.onnx", scale)
                model = converter.load(source)
                model.ir.graph.inputs[0].name = name
                converter.save(model, base / name / FORMS[form], form)
            if form == "mlprogram":
                (base / "old" / FORMS[form] / "Data" / "more").write_bytes(b"of the old one")
            known[form] = base / "old", base / "new"
        return known[form]

    return of


def files_of(folder: Path) -> Listing:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stored(store: Any) -> Listing:
    """All objects in the folder of the results."""
    return {p.removeprefix("/made/"): store.cat_file(p) for p in store.find("/made")}


def visible(objects: Listing) -> Listing:
    return {n: v for n, v in objects.items() if not n.startswith(atomic.PREFIX)}


def head_of(name: str) -> str:
    return f"{name}/Manifest.json" if name.endswith(".mlpackage") else name


def used(form: str, there: Listing) -> Listing:
    """Return the files that a reader takes."""
    return visible(there) if head_of(FORMS[form]) in there else {}


def publish(store: Store, folder: Path, tmp_path: Path, name: str) -> None:
    """As a batch does."""
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "filesystem", lambda url: (store, url.removeprefix("memory:/")))
        staging.publish(tmp_path / "copy" / name, f"memory://made/{name}")


@pytest.mark.parametrize("effect", [False, True], ids=["not done", "done but refused"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "from there on"])
@pytest.mark.parametrize("first", [True, False], ids=["nothing before", "old before"])
@pytest.mark.parametrize("form", FORMS)
def test_after_any_request_that_fails_readers_find_one_set_or_none(
    tmp_path: Path, memory: Any, made: Any, form: str, first: bool, once: bool, effect: bool
) -> None:
    name, (before, after) = FORMS[form], made(form)
    old, new = ({} if first else files_of(before)), files_of(after)
    assert first or not {n for n in old if old[n] == new.get(n)}
    seen = set()
    for number in range(1, MOST):
        if memory.exists("/made"):
            memory.rm("/made", recursive=True)
        for n, data in old.items():
            memory.pipe_file(f"/made/{n}", data)
        store = Store(number, once, effect)
        store.after = lambda: check_reader(form, stored(memory), old, new)
        message = ""
        try:
            publish(store, after, tmp_path, name)
        except ConverterError as e:
            message = str(e)
        there = stored(memory)
        place = f"request {number}: {message}"
        check_reader(form, there, old, new)
        if not message:
            assert there == new, place
        elif "complete and in place" in message:
            assert visible(there) == new and (effect or there != new), place
        elif "could not be restored" in message:
            assert not once and old, place
            named = re.search(r"copies of them are in (\S+)", message)
            assert named is not None
            folder = named[1].removeprefix("memory:///made/")
            copies = {n.removeprefix(f"{folder}/"): v for n, v in there.items() if folder in n}
            assert {
                **copies,
                **{n: v for n, v in visible(there).items() if n in old and v == old[n]},
            } == old, place
        elif not old:
            assert used(form, there) in ({}, new), place
        else:
            whole = len(new) == 1 and effect  # one object: the store has it and reports an error
            assert visible(there) in ([old, new] if whole else [old]), place
            if once:
                assert there == visible(there), place
        seen.add((bool(message), "could not be restored" in message))
        if store.count < number:
            break
    else:
        pytest.fail(f"more than {MOST} requests")
    assert {(False, False), (True, False)} <= seen
    assert ((True, True) in seen) == (not once and bool(old) and len(new) > 1)


def check_reader(form: str, there: Listing, old: Listing, new: Listing) -> None:
    """At any moment: the old set, the new one, or no model."""
    found = used(form, there)
    assert not found or found in (old, new), sorted(found)


def test_a_store_without_copies_of_its_own_keeps_the_old_files_all_the_same(
    tmp_path: Path, memory: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = made("openvino")
    for n, data in files_of(before).items():
        memory.pipe_file(f"/made/{n}", data)

    class Plain(Store):
        def cp_file(self, source: str, target: str) -> None:
            raise NotImplementedError  # as fsspec does

    store = Plain()
    monkeypatch.setattr(store, "put_file", Refusing(store.real), raising=False)
    with pytest.raises(ConverterError, match="500"):
        publish(store, after, tmp_path, "net.xml")
    assert stored(memory) == files_of(before)


class Refusing:
    """Refuses to put the model once."""

    def __init__(self, real: Any) -> None:
        self.real, self.refused = real, False

    def __call__(self, source: str, target: str) -> None:
        if target == "/made/net.xml" and not self.refused:
            self.refused = True
            raise Refused("500")
        self.real.put_file(source, target)


def test_a_side_file_of_another_model_is_not_replaced(
    tmp_path: Path, memory: Any, made: Any
) -> None:
    """An IR and a Compass IR of one name would share net.bin."""
    for n, data in files_of(made("openvino")[0]).items():
        memory.pipe_file(f"/made/{n}", data)
    before = stored(memory)
    with pytest.raises(ConverterError, match=r"W302.*a file that net.xml uses"):
        publish(Store(), made("zhouyi")[1], tmp_path, "net.txt")
    assert stored(memory) == before
    publish(Store(), made("openvino")[1], tmp_path, "net.xml")


def test_a_reader_does_not_mix_old_and_new_files(
    tmp_path: Path, memory: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("openvino", "mlprogram"):
        old, new = (files_of(f) for f in made(form))
        name = FORMS[form]
        for n, data in old.items():
            memory.pipe_file(f"/made/{n}", data)
        store, real, gets = Store(), fsspec.filesystem("memory").get_file, 0

        def get_file(source: str, target: str) -> None:
            nonlocal gets
            real(source, target)  # noqa: B023
            gets += 1
            if gets == 1:
                for n, data in new.items():  # noqa: B023
                    memory.pipe_file(f"/made/{n}", data)

        monkeypatch.setattr(store, "get_file", get_file, raising=False)
        monkeypatch.setattr(staging, "filesystem", lambda u: (store, u.removeprefix("memory:/")))  # noqa: B023
        staging.fetch(f"memory://made/{name}", tmp_path / form)
        found = files_of(tmp_path / form)
        assert {n: found[n] for n in new} == new
        memory.rm("/made", recursive=True)


def test_a_model_that_is_replaced_again_and_again_is_refused(
    tmp_path: Path, memory: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = files_of(made("openvino")[0])
    store, real = Store(), fsspec.filesystem("memory").get_file

    def replace() -> None:
        for n, data in old.items():
            memory.pipe_file(f"/made/{n}", data)

    def get_file(source: str, target: str) -> None:
        real(source, target)
        replace()

    replace()
    monkeypatch.setattr(store, "get_file", get_file, raising=False)
    monkeypatch.setattr(staging, "filesystem", lambda u: (store, u.removeprefix("memory:/")))
    with pytest.raises(ConverterError, match=r"R100.*another program is replacing"):
        staging.fetch("memory://made/net.xml", tmp_path / "in")


def test_a_conversion_to_a_url_leaves_the_old_model_or_the_new(
    tmp_path: Path, memory: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line, as a batch does it."""
    monkeypatch.chdir(tmp_path)
    for name, scale in (("old", 0.1), ("new", 0.9)):
        small(tmp_path / f"{name}.onnx", scale)

    def call(name: str) -> int:
        output = ("-o", "memory://made/net.xml", "--force")
        monkeypatch.setattr("sys.argv", ["netconv", "convert", f"{name}.onnx", *output])
        console.use(console.Console())
        return app._guarded()

    results = {}
    for name in ("new", "old"):
        assert call(name) == 0
        results[name] = stored(memory)
    for number in range(1, MOST):
        store = Store(number)
        monkeypatch.setattr(staging, "filesystem", lambda u: (store, u.removeprefix("memory:/")))  # noqa: B023
        code = call("new")
        assert (code, stored(memory)) in [
            (0, results["new"]), (ExitCode.UNWRITABLE, results["old"])
        ], number  # fmt: skip
        if store.count < number:
            break
        for n, data in results["old"].items():
            memory.pipe_file(f"/made/{n}", data)
    assert number > 5 and os.listdir(tmp_path)
