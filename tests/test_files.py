"""converter/io/files.py: bounds of mapped files, the guard of side files, outputs that appear
complete or not at all.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from converter.errors import ConverterError, Diagnostic, ReadError, Where, WriteError
from converter.io.chunks import SLAB, slabs, write_array
from converter.io.files import Output, _open_without_links, open_side_file, side_file
from converter.io.mapped_file import MappedFile
from support import run_python


def code_of(call: Callable[[], object]) -> str:
    """The code of the refusal that `call` must end in."""
    with pytest.raises(ConverterError) as info:
        call()
    (diagnostic,) = info.value.diagnostics
    return diagnostic.code


def listing(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# --- reading


@pytest.fixture
def ten(tmp_path: Path) -> MappedFile:
    (tmp_path / "ten.bin").write_bytes(bytes(range(10)))
    return MappedFile(tmp_path / "ten.bin")


def test_a_mapped_file_is_its_bytes_and_is_not_writable(ten: MappedFile) -> None:
    assert len(ten) == 10
    assert ten.bytes.tobytes() == bytes(range(10))
    with pytest.raises(ValueError, match="read-only"):
        ten.bytes[0] = 1


@given(st.integers(-3, 2**70), st.integers(-3, 2**70))
def test_a_slice_lies_inside_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, offset: int, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "slice.bin"
    if not path.exists():
        path.write_bytes(bytes(range(10)))
    mapped = MappedFile(path)
    if offset >= 0 and size >= 0 and offset + size <= 10:
        assert mapped.slice(offset, size).tobytes() == bytes(range(10))[offset : offset + size]
    else:
        assert code_of(lambda: mapped.slice(offset, size)) == "R102"


@pytest.mark.parametrize(("offset", "size"), [(0, 10), (10, 0), (9, 1), (0, 0)])
def test_slices_reach_both_ends(ten: MappedFile, offset: int, size: int) -> None:
    assert ten.slice(offset, size).tobytes() == bytes(range(10))[offset : offset + size]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 11), (10, 1), (11, 0), (-1, 1), (1, -1), (2**63, 2**63)]
)
def test_slices_beyond_the_end_are_refused_with_the_location(
    ten: MappedFile, offset: int, size: int
) -> None:
    with pytest.raises(ReadError) as info:
        ten.slice(offset, size, Where("net.xml", 7, layer="conv1"))
    assert info.value.diagnostics[0].where == Where("net.xml", 7, layer="conv1")
    assert "10" in info.value.diagnostics[0].message


def test_slices_are_views_that_outlive_the_file_object(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abcdef")
    mapped = MappedFile(tmp_path / "a.bin")
    part = mapped.slice(2, 3)
    assert np.shares_memory(part, mapped.bytes)
    del mapped
    (tmp_path / "a.bin").unlink()
    assert part.tobytes() == b"cde"


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert len(MappedFile(tmp_path / "empty")) == 0
    assert code_of(lambda: MappedFile(tmp_path / "empty").slice(0, 1)) == "R102"


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert code_of(lambda: MappedFile(tmp_path / "missing")) == "R100"
    assert code_of(lambda: MappedFile(tmp_path)) == "R100"
    assert code_of(lambda: MappedFile("a\0b")) == "R100"
    assert code_of(lambda: MappedFile(tmp_path / ("x" * 5000))) == "R100"


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert code_of(lambda: MappedFile(tmp_path / "pipe")) == "R100"


def test_many_maps_do_not_use_up_file_descriptors(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abcdef")
    before = len(os.listdir("/dev/fd"))
    maps = [MappedFile(tmp_path / "a.bin") for _ in range(50)]
    # a map holds one descriptor, and one is kept to copy from; more would be a leak
    assert len(os.listdir("/dev/fd")) <= before + 2 * len(maps)
    maps.clear()
    assert len(os.listdir("/dev/fd")) <= before


# --- side files


@pytest.mark.parametrize(
    "name", ["net.bin", "weights/net.bin", "./net.bin", "a/../net.bin", "net..bin", "ünï.bin"]
)
def test_side_files_below_the_folder(tmp_path: Path, name: str) -> None:
    assert side_file(tmp_path / "net.xml", name) == (tmp_path / name).resolve()


@pytest.mark.parametrize(
    "name",
    [
        "../net.bin",
        "a/../../net.bin",
        "/etc/passwd",
        "..",
        "net\0.bin",
        "\ud800.bin",
        "weights/../../x/net.bin",
    ],
)
def test_side_files_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    assert code_of(lambda: side_file(tmp_path / "net.xml", name)) == "R107"


def test_a_side_file_does_not_leave_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "inner" / "link.bin").symlink_to(tmp_path / "secret")
    (tmp_path / "inner" / "up").symlink_to(tmp_path)
    assert code_of(lambda: side_file(tmp_path / "inner" / "net.xml", "link.bin")) == "R107"
    assert code_of(lambda: side_file(tmp_path / "inner" / "net.xml", "up/secret")) == "R107"


def hub(folder: Path, name: str = "model.onnx") -> Path:
    """A model and its side file as huggingface_hub stores them: links from snapshots into blobs."""
    blobs, snapshot = folder / "blobs", (folder / "snapshots" / "abc" / name).parent
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for link, content in ((Path(name).name, "1111"), (Path(name).name + "_data", "2222")):
        (blobs / content).write_text(content)
        (snapshot / link).symlink_to(os.path.relpath(blobs / content, snapshot))
    return folder / "snapshots" / "abc" / name


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
def test_links_inside_one_cache_of_the_hub_are_followed(tmp_path: Path, name: str) -> None:
    model = hub(tmp_path / "cache", name)
    assert side_file(model, "model.onnx_data") == (tmp_path / "cache" / "blobs" / "2222").resolve()
    file = open_side_file(model, "model.onnx_data")
    assert file is not None and file.bytes.tobytes() == b"2222"
    assert open_side_file(model, "model.onnx_other") is None
    os.unlink(tmp_path / "cache" / "blobs" / "2222")
    assert open_side_file(model, "model.onnx_data") is None


@pytest.mark.parametrize(
    "target",
    [
        "blobs/inner/secret",
        "blobs/pipe",
        "other/secret",
        "../secret",
        "../two/blobs/2222",
        "../two/snapshots/abc/model.onnx",
    ],
)
def test_other_links_out_of_a_snapshot_are_not(tmp_path: Path, target: str) -> None:
    model = hub(tmp_path / "cache")
    hub(tmp_path / "two")
    os.mkfifo(tmp_path / "cache" / "blobs" / "pipe")
    for folder in ("cache/blobs/inner", "cache/other", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "secret").write_bytes(b"x")
    (model.parent / "away").symlink_to(tmp_path / "cache" / target)
    assert code_of(lambda: open_side_file(model, "away")) == "R107"
    assert code_of(lambda: open_side_file(model, "../../blobs/2222")) == "R107"


def test_blobs_next_to_other_folders_are_no_cache(tmp_path: Path) -> None:
    model = hub(tmp_path / "cache")
    os.rename(tmp_path / "cache" / "snapshots", tmp_path / "cache" / "shots")
    assert (
        code_of(
            lambda: open_side_file(
                tmp_path / "cache" / "shots" / "abc" / model.name, "model.onnx_data"
            )
        )
        == "R107"
    )


def test_a_side_file_is_next_to_the_model_or_next_to_the_link_to_it(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "there" / "net.xml").touch()
    (tmp_path / "here" / "net.xml").symlink_to(tmp_path / "there" / "net.xml")
    model = tmp_path / "here" / "net.xml"
    (tmp_path / "here" / "net.bin").write_bytes(b"here")
    assert side_file(model, "net.bin") == tmp_path / "here" / "net.bin"
    (tmp_path / "there" / "net.bin").write_bytes(b"there")
    assert side_file(model, "net.bin") == tmp_path / "there" / "net.bin"


def test_a_link_that_appears_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("net", "away"):
        (tmp_path / folder / "inner").mkdir(parents=True)
        (tmp_path / folder / "inner" / "a.bin").write_bytes(folder.encode())
    model = tmp_path / "net" / "net.xml"

    def change_and_open(place: Path) -> int:
        os.rename(tmp_path / "net" / "inner", tmp_path / "net" / "gone")
        (tmp_path / "net" / "inner").symlink_to(tmp_path / "away" / "inner")
        return _open_without_links(place)

    monkeypatch.setattr("converter.io.files._open_without_links", change_and_open)
    assert open_side_file(model, "inner/a.bin") is None
    monkeypatch.undo()
    assert code_of(lambda: open_side_file(model, "inner/a.bin")) == "R107"


def test_a_folder_of_the_same_beginning_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net2").mkdir()
    assert code_of(lambda: side_file(tmp_path / "net" / "a.xml", "../net2/a.bin")) == "R107"


# --- writing


def write_pair(
    target: Path | str, xml: bytes = b"<net/>", weights: bytes = b"1234", **options: str
) -> None:
    with Output(target, **options) as out:
        with out.open(".bin") as f:
            f.write(weights)
        with out.open() as f:
            f.write(xml)


def test_outputs_appear_together_at_the_end(tmp_path: Path) -> None:
    with Output(tmp_path / "net.xml") as out:
        with out.open(".bin") as f:
            f.write(b"1234")
        with out.open() as f:
            f.write(b"<net/>")
        assert not (tmp_path / "net.xml").exists()
        assert not (tmp_path / "net.bin").exists()
    assert listing(tmp_path) == {"net.xml": b"<net/>", "net.bin": b"1234"}


def test_the_stem_of_a_double_suffix(tmp_path: Path) -> None:
    write_pair(tmp_path / "net.v2.nnapi.json", suffix=".nnapi.json")
    assert set(listing(tmp_path)) == {"net.v2.nnapi.json", "net.v2.bin"}


def test_an_error_in_between_keeps_the_old_files(tmp_path: Path) -> None:
    write_pair(tmp_path / "net.xml", b"old", b"old weights")
    with pytest.raises(ZeroDivisionError), Output(tmp_path / "net.xml") as out:
        with out.open(".bin") as f:
            f.write(b"new weights")
        with out.open() as f:
            f.write(b"ne")
            raise ZeroDivisionError
    assert listing(tmp_path) == {"net.xml": b"old", "net.bin": b"old weights"}


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "net.xml") as out, out.open() as f:
        f.write(b"half")
        raise KeyboardInterrupt
    assert listing(tmp_path) == {}


def test_an_existing_pair_is_replaced(tmp_path: Path) -> None:
    write_pair(tmp_path / "net.xml", b"old", b"old weights")
    write_pair(tmp_path / "net.xml", b"new", b"new weights")
    assert listing(tmp_path) == {"net.xml": b"new", "net.bin": b"new weights"}


def test_the_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_pair(tmp_path / "net.xml")
    (tmp_path / "other").touch()
    assert stat.S_IMODE((tmp_path / "net.xml").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "other").stat().st_mode
    )


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert code_of(lambda: write_pair(tmp_path / "missing" / "net.xml")) == "W301"
    (tmp_path / "file").touch()
    assert code_of(lambda: write_pair(tmp_path / "file" / "net.xml")) == "W301"
    assert listing(tmp_path) == {"file": b""}


@pytest.mark.parametrize("taken", ["net.xml", "net.bin"])
def test_a_folder_instead_of_a_file_is_refused_and_nothing_appears(
    tmp_path: Path, taken: str
) -> None:
    (tmp_path / taken).mkdir()
    assert code_of(lambda: write_pair(tmp_path / "net.xml")) == "W301"
    assert [p.name for p in tmp_path.iterdir()] == [taken]


def test_a_name_that_the_system_refuses(tmp_path: Path) -> None:
    assert code_of(lambda: write_pair(tmp_path / ("x" * 300 + ".xml"))) == "W301"
    assert code_of(lambda: write_pair(tmp_path / "a\0b.xml")) == "W301"
    assert listing(tmp_path) == {}


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; buffered bytes fail late, on flush."""
    code = """if True:
        import resource, sys
        from converter.errors import WriteError
        from converter.io.files import Output
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            with Output("net.xml") as out:
                with out.open() as f:
                    f.write(b"<net/>")
                with out.open(".bin") as f:
                    f.write(bytes(int(sys.argv[1])))
        except WriteError as e:
            print(e)
    """
    for size in (100_001, 10_000_000):  # less and more than a buffer
        text = run_python(code, str(size), cwd=tmp_path)
        assert re.fullmatch(r"error\[W301\] cannot write: File too large at net\.bin\n", text)
        assert listing(tmp_path) == {}
    assert run_python(code, "100000", cwd=tmp_path) == ""
    assert set(listing(tmp_path)) == {"net.xml", "net.bin"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    """In a child that is not root (root may write anywhere), inside the folder (its parents may be
    closed to that user).
    """
    tmp_path.chmod(0o555)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                os.setuid(65534)
            try:
                write_pair("net.xml")
            except WriteError as e:
                status = 0 if e.diagnostics[0].code == "W301" and "ermission" in str(e) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    tmp_path.chmod(0o755)
    assert os.waitstatus_to_exitcode(status) == 0
    assert listing(tmp_path) == {}


# --- files that are made while the caller goes on


def test_a_streamed_file_is_its_arrays_one_after_the_other(tmp_path: Path) -> None:
    parts = [np.arange(6, dtype="<i2").reshape(2, 3).T, np.zeros(0), np.arange(5, dtype=np.uint8)]
    with Output(tmp_path / "net.xml") as out:
        out.stream(".bin", iter(parts))
        with out.open() as f:
            f.write(b"<net/>")
    assert listing(tmp_path) == {
        "net.xml": b"<net/>",
        "net.bin": b"".join(p.tobytes() for p in parts),
    }


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ZeroDivisionError("made wrong"),
        WriteError(Diagnostic("W330", "no")),
    ],
)
def test_an_error_in_a_stream_is_that_of_the_output(error: Exception, tmp_path: Path) -> None:
    def parts() -> Iterator[Any]:
        yield np.zeros(10)
        raise error

    with (
        pytest.raises(WriteError if isinstance(error, OSError) else type(error)) as found,
        Output(tmp_path / "net.xml") as out,
    ):
        out.stream(".bin", parts())
        with out.open() as f:
            f.write(b"<net/>")
    assert listing(tmp_path) == {}
    assert not isinstance(error, OSError) or (
        "No space left on device at" in str(found.value)
        and str(found.value).rstrip().endswith("net.bin")
    )


def test_an_error_of_the_caller_ends_a_stream(tmp_path: Path) -> None:
    made = 0

    def endless() -> Iterator[Any]:
        nonlocal made
        while True:
            made += 1
            yield np.zeros(1)

    with pytest.raises(ZeroDivisionError), Output(tmp_path / "net.xml") as out:
        out.stream(".bin", endless())
        while made < 10:
            pass
        raise ZeroDivisionError
    before = made
    assert listing(tmp_path) == {} and made == before


# --- large arrays


@example([1, 0, 2], (2, 2, 2), 1)  # rows that lie as they are wanted are no copies
@given(
    st.permutations(range(3)),
    st.tuples(*[st.integers(0, 5)] * 3),
    st.sampled_from([1, 7, 16, 100, 1 << 20]),
)
def test_slabs_are_the_array_in_its_order(
    perm: list[int], shape: tuple[int, int, int], size: int
) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape).transpose(perm)
    pieces = list(slabs(array, size))
    assert all(piece.flags.c_contiguous for piece in pieces)
    assert b"".join(piece.tobytes() for piece in pieces) == array.tobytes()
    copied = [piece for piece in pieces if not np.shares_memory(piece, array)]
    assert all(piece.nbytes <= max(size, 2) for piece in copied)


@pytest.mark.parametrize("dtype", ["u1", "f2", "<f4", "c16"])
@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((70, 300), (1, 0)),
        ((3, 33, 200), (0, 2, 1)),
        ((20, 7, 3, 90), (2, 3, 1, 0)),
        ((65, 70, 1, 1), (2, 3, 1, 0)),
    ],
)
def test_slabs_across_the_order_of_memory(
    dtype: str, shape: tuple[int, ...], perm: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    for view in (array.transpose(perm), array[::-1].transpose(perm)):
        assert b"".join(piece.tobytes() for piece in slabs(view, 5000)) == view.tobytes()
        assert b"".join(piece.tobytes() for piece in slabs(view)) == view.tobytes()


def test_files_are_mapped_while_others_are_written(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(100))
    over = threading.Event()

    def map_and_forget() -> None:
        while not over.is_set():
            kept = [MappedFile(tmp_path / "in") for _ in range(20)]
            kept[0].circle = kept  # type: ignore[attr-defined]  # forgotten by the search for cycles

    other, array = threading.Thread(target=map_and_forget), np.zeros(SLAB // 4, np.uint8)
    other.start()
    try:
        with Output(tmp_path / "out") as out, out.open() as f:
            for _ in range(200):
                write_array(f, array)
    finally:
        over.set()
        other.join()
    assert (tmp_path / "out").stat().st_size == 200 * array.nbytes


PEAK = """
import sys
from converter.io.files import Output
from converter.io.mapped_file import MappedFile
from converter.io.chunks import write_array
source = MappedFile(sys.argv[1]).bytes.view("<f4").reshape(-1, 1024, 1024)
with Output(sys.argv[2]) as out, out.open() as f:
    write_array(f, source)
    write_array(f, source.transpose(0, 2, 1))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process"
)
@pytest.mark.slow
def test_written_data_do_not_stay_in_memory(tmp_path: Path) -> None:
    """384 MiB through a process whose own share is some 30 MiB: pages of the mapped input that went
    by are given back.
    """
    size = 96 * SLAB
    with (tmp_path / "source").open("wb") as f:
        f.truncate(size)
        f.seek(1234 * 4096)
        f.write(np.arange(1 << 18, dtype="<f4").tobytes())
    peak = int(run_python(PEAK, str(tmp_path / "source"), str(tmp_path / "copy")))
    assert peak * 1024 < size * 3 // 4
    source, copy = (
        np.memmap(tmp_path / name, "<f4", "r").reshape(-1, 1024, 1024)
        for name in ("source", "copy")
    )
    assert np.array_equal(copy[: len(source)], source)
    assert np.array_equal(copy[len(source) :], source.transpose(0, 2, 1))
