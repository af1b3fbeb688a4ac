"""converter/io/atomic.py: after any end of a writer, at any moment: the old files or the new
ones, complete.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import converter
from converter import formats
from converter.errors import ConverterError
from converter.formats import model_files
from converter.io import atomic, chunks, files
from converter.io.files import Output
from converter.io.signals import REQUESTS
from mutations import network
from support import run_python

SETS = {
    "openvino": "net.xml",
    "zhouyi": "net.txt",
    "nnapi": "net.nnapi.json",
    "onnx+external": "net.onnx",
    "onnx": "net.onnx",
    "coreml": "net.mlmodel",
    "coreml+spec=5": "net.mlpackage",
}
Listing = dict[str, bytes]


def seen(folder: Path) -> Listing:
    """The files that other programs see, and those in the folders among them."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for entry in folder.iterdir()
        if not entry.name.startswith(atomic.PREFIX)
        for p in [entry, *entry.rglob("*")]
        if p.is_file()
    }


def write(target: Path, text: bytes) -> None:
    with Output(target) as out:
        out.stream(".bin", [np.frombuffer(text, np.uint8)])
        for suffix in (".map", ""):
            with out.open(suffix) as f:
                f.write(text)


def both(tmp_path: Path) -> tuple[Listing, Listing]:
    """The contents of two versions of the set."""
    found = []
    for text in (b"old", b"new"):
        (tmp_path / "whole").mkdir()
        write(tmp_path / "whole" / "net.xml", text)
        found.append(seen(tmp_path / "whole"))
        shutil.rmtree(tmp_path / "whole")
    return found[0], found[1]


# --- interruptions: Ctrl-C before each line of the writer

INTERRUPTED = """if True:
    import os, signal, sys
    os.fsync = lambda file: None  # nothing here loses its power
    from pathlib import Path
    sys.path[:0] = sys.argv[4:]
    from test_publish import interrupt_at_lines

    number, first, every = (int(a) for a in sys.argv[1:4])
    signal.signal(number, signal.default_int_handler)
    interrupt_at_lines(Path(), number, bool(first), every)
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", [True, False], ids=["nothing before", "old files before"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_at_any_line_leaves_the_old_files_or_the_new(
    tmp_path: Path, number: int, first: bool, every: int
) -> None:
    """In a process of its own: signals and tracing are the whole process's."""
    here = str(Path(__file__).parent)
    run_python(INTERRUPTED, *(str(int(n)) for n in (number, first, every)), here, cwd=tmp_path)


def interrupt_at_lines(folder: Path, number: int, first: bool, every: int) -> None:
    """Writes a set of files again and again, interrupted before each `every`-th line event, until a
    run ends before its interruption.
    """
    old, new = both(folder)
    answers, kept = [], handlers()
    for step in range(0, 1000, every):
        place = folder / str(step)
        place.mkdir()
        if not first:
            write(place / "net.xml", b"old")
        finished = interrupted_at(
            step, number, lambda place=place: write(place / "net.xml", b"new")
        )
        assert handlers() == kept, f"line event {step}"
        atomic.remove_all()  # as at the end of the process
        left = {p.name for p in place.iterdir()}
        assert seen(place) in ({} if first else old, new), f"line event {step}: {sorted(left)}"
        assert left == set(seen(place)), f"line event {step}: {sorted(left)}"
        answers.append(seen(place) == new)
        shutil.rmtree(place)
        if finished:
            break
    assert len(answers) > 100 // every and answers[-1] and not answers[0]


def test_a_workspace_that_is_removed_while_it_is_being_removed_is_removed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the garbage collector ends an interrupted writer while the process is ending: a
    second close of a lock would close another file of that number.
    """
    suspended = atomic.workspace(tmp_path / "net.xml")
    path = suspended.__enter__()
    lock = list(atomic.workspaces[path].locks)
    clear, ends = atomic._clear, [suspended]

    def clear_and_collect(place: Path) -> None:
        clear(place)
        while ends:
            ends.pop().__exit__(None, None, None)

    monkeypatch.setattr(atomic, "_clear", clear_and_collect)
    atomic.remove_all()
    assert not path.exists() and not atomic.workspaces
    for descriptor in lock:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def handlers() -> list[Any]:
    return [signal.getsignal(n) for n in REQUESTS]


def interrupted_at(step: int, number: int, call: Callable[[], None]) -> bool:
    """Runs `call` and raises a signal before line event `step` of the modules that write; whether
    it ended before that.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in (files.__file__, chunks.__file__, atomic.__file__):
            return None
        if event == "line":
            count += 1
            if count == step + 1:
                signal.raise_signal(number)
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return count <= step


# --- kills: before each call to the operating system that changes a folder

KILLED = """if True:
    import os, signal, shutil, sys
    from pathlib import Path
    sys.path[:0] = sys.argv[3:]
    import converter
    from converter.io import atomic
    from mutations import network
    from test_publish import seen

    form, name = sys.argv[1:3]
    EVENTS = {
        "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir",
        "fcntl.flock", "shutil.rmtree",
    }

    os.fsync = lambda file: None  # nothing here loses its power
    models = {text: network() for text in ("old", "new")}
    for text, model in models.items():
        model.ir.graph.inputs[0].name = text

    def save(folder, text):
        converter.save(models[text], folder / name, form)

    def whole(text):
        folder = Path("whole"); folder.mkdir()
        save(folder, text)
        found = seen(folder)
        shutil.rmtree(folder)
        return found

    old, new = whole("old"), whole("new")
    assert old != new and set(old) == set(new)
    answers = set()
    for before in ({}, old):
        for step in range(10_000):
            folder = Path("work"); folder.mkdir()
            for n, data in before.items():
                (folder / n).parent.mkdir(parents=True, exist_ok=True)
                (folder / n).write_bytes(data)
            child = os.fork()
            if child == 0:
                count = 0
                def hook(event, arguments):
                    global count
                    if event in EVENTS:
                        count += 1
                        if count == step + 1:
                            os.kill(os.getpid(), signal.SIGKILL)
                sys.addaudithook(hook)
                try:
                    save(folder, "new")
                finally:
                    os._exit(0)
            killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
            now = seen(folder)
            there = (folder / name).exists()
            if there:
                kept = [k for k in now if now[k] == old.get(k)]
                assert now in (before, new), (step, sorted(now), kept)
            atomic.recover(folder / name)
            after = seen(folder)
            assert after in (before, new), (step, sorted(after))
            assert not there or after == now
            shown = {n.split("/")[0] for n in after}
            left = [p.name for p in folder.iterdir() if p.name not in shown]
            assert not left, (step, left)
            answers.add((bool(before), there, after == new))
            shutil.rmtree(folder)
            if not killed:
                break
        assert step > 10
    print(sorted(answers))
"""


@pytest.mark.skipif(not hasattr(os, "fork") or atomic.fcntl is None, reason="needs fork and locks")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", SETS)
def test_a_kill_at_any_moment_leaves_the_old_files_or_the_new(tmp_path: Path, form: str) -> None:
    """Other programs see one of the two, or no model for a moment; the next read or write by
    netconv always finds one of the two.
    """
    here = str(Path(__file__).parent)
    said = run_python(KILLED, form, SETS[form], here, cwd=tmp_path)
    assert "(True, True, False)" in said and "(True, True, True)" in said
    assert ("(True, False, True)" in said) == (
        len(seen_of(form, tmp_path)) > 1
    )  # sets have the moment, single files do not


def seen_of(form: str, tmp_path: Path) -> Listing:
    (tmp_path / "one").mkdir()
    converter.save(network(), tmp_path / "one" / SETS[form], form)
    return seen(tmp_path / "one")


def abandoned(tmp_path: Path, text: bytes = b"new") -> Path:
    """A folder where a writer was killed between two of its renames."""
    write(tmp_path / "net.xml", b"old")
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from converter.io.files import Output
        def hook(event, arguments):
            if event == "os.rename" and os.path.basename(arguments[1]) == "net.map":
                os.kill(os.getpid(), signal.SIGKILL)
        with Output("net.xml") as out:
            for suffix in (".bin", ".map", ""):
                with out.open(suffix) as f:
                    f.write(b"new")
            sys.addaudithook(hook)
    """
    from support import ROOT

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "net.xml").exists() and [
        p for p in tmp_path.iterdir() if p.name.startswith(atomic.PREFIX)
    ]
    return tmp_path / "net.xml"


def folder_of(target: Path, text: bytes, checked: bool = True) -> None:
    with Output(target, check=(lambda files: None) if checked else None) as out:
        for name in ("a/b/c", "d"):
            with out.open(inside=name) as f:
                f.write(text)


def test_a_folder_replaces_another_only_where_that_is_checked(tmp_path: Path) -> None:
    folder_of(tmp_path / "net", b"old")
    (tmp_path / "net" / "a" / "more").touch()
    with pytest.raises(ConverterError, match="a folder has this name"):
        folder_of(tmp_path / "net", b"new", checked=False)
    folder_of(tmp_path / "net", b"new")
    assert seen(tmp_path) == {"net/a/b/c": b"new", "net/d": b"new"}
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


def test_a_folder_replaces_no_file_and_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "there", target_is_directory=True)
    (tmp_path / "there").mkdir()
    for name in ("file", "link"):
        with pytest.raises(ConverterError, match="a file or a link has this name"):
            folder_of(tmp_path / name, b"new")
    assert seen(tmp_path) == {"file": b""}


def test_a_file_of_a_folder_that_fails_leaves_the_old_folder(tmp_path: Path) -> None:
    folder_of(tmp_path / "net", b"old")
    with (
        pytest.raises(ZeroDivisionError),
        Output(tmp_path / "net", check=lambda files: None) as out,
        out.open(inside="d"),
    ):
        raise ZeroDivisionError
    assert seen(tmp_path) == {"net/a/b/c": b"old", "net/d": b"old"}


def test_reading_completes_the_work_of_a_killed_writer(tmp_path: Path) -> None:
    target = abandoned(tmp_path)
    with pytest.raises(ConverterError):  # it is no model, but it is there again
        converter.load(target)
    assert seen(tmp_path) == dict.fromkeys(("net.xml", "net.bin", "net.map"), b"new")
    assert len(list(tmp_path.iterdir())) == 3


def test_writing_removes_leftovers_of_a_killed_writer(tmp_path: Path) -> None:
    write(abandoned(tmp_path), b"newer")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("net.xml", "net.bin", "net.map"), b"newer"
    )


def test_files_that_appear_meanwhile_are_kept(tmp_path: Path) -> None:
    target = abandoned(tmp_path)
    target.write_bytes(b"by hand")
    atomic.recover(target)
    assert target.read_bytes() == b"by hand" and not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_a_writer_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    with Output(tmp_path / "net.xml") as out:
        with out.open() as f:
            f.write(b"slow")
        code = (
            "from converter.io.files import Output\nwith Output('net.xml') as out, "
            "out.open() as f: f.write(b'quick')"
        )
        run_python(code, cwd=tmp_path)
        assert (tmp_path / "net.xml").read_bytes() == b"quick"
        atomic.recover(tmp_path / "net.xml")
    assert (tmp_path / "net.xml").read_bytes() == b"slow"


def test_writers_of_one_target_never_mix_their_files(tmp_path: Path) -> None:
    code = """if True:
        import itertools, os, sys
        from converter.io.files import Output
        for i in itertools.count():
            with Output("net.xml") as out:
                for suffix in (".bin", ".map", ""):
                    with out.open(suffix) as f:
                        f.write(f"{sys.argv[1]} {i}".encode())
            if i >= 20 and os.path.exists(sys.argv[2]):
                break
    """
    from support import ROOT

    folder, enough = tmp_path / "nets", tmp_path / "enough"
    folder.mkdir()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, n, str(enough)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for n in "abc"
    ]
    looks = 0
    while any(w.poll() is None for w in writers):
        with atomic.folder_lock(folder):
            found = seen(folder)
        if found and not (len(found) == 3 and len(set(found.values())) == 1):
            enough.touch()
            raise AssertionError(found)
        looks += bool(found)
        if looks == 50:
            enough.touch()
    assert [w.returncode for w in writers] == [0, 0, 0] and looks >= 50
    assert set(seen(folder)) == {p.name for p in folder.iterdir()}


# --- failures


@pytest.mark.parametrize("failing", range(6))
def test_a_rename_that_fails_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    write(tmp_path / "net.xml", b"old")
    renames, real = 0, os.rename

    def rename(a: Any, b: Any) -> None:
        nonlocal renames
        renames += 1
        if renames == failing + 1:
            raise OSError(5, "Input/output error")
        real(a, b)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ConverterError, match="W301"):
        write(tmp_path / "net.xml", b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("net.xml", "net.bin", "net.map"), b"old"
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", SETS)
def test_a_full_disk_leaves_the_old_files(tmp_path: Path, form: str) -> None:
    """A file system of a few pages, in name spaces of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    folder = tmp_path / "small"
    folder.mkdir()
    enter = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size="$2" tmpfs "$1" && shift 2 && exec "$@"',
        "sh",
        str(folder),
    ]
    if subprocess.run([*enter, "64k", "true"], capture_output=True).returncode != 0:
        pytest.skip("no name spaces for this user")
    code = """if True:
        import sys
        from pathlib import Path
        sys.path[:0] = sys.argv[4:]
        import converter
        from converter.errors import ConverterError
        from mutations import network
        from test_publish import seen
        folder, name, form = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
        converter.save(network(), folder / name, form)
        old = seen(folder)
        (folder / "filler").write_bytes(b"")
        with open(folder / "filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        old["filler"] = seen(folder)["filler"]
        try:
            converter.save(network(), folder / name, form)
            print("written")
        except ConverterError as e:
            print(e.diagnostics[0].code)
        assert seen(folder) == old, sorted(seen(folder))
        assert {p.name for p in folder.iterdir()} == {n.split("/")[0] for n in old}
    """
    from support import ROOT

    arguments = [
        sys.executable,
        "-c",
        code,
        str(folder),
        SETS[form],
        form,
        str(Path(__file__).parent),
    ]
    done = subprocess.run(
        [*enter, "160k", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "W301\n", done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_paths_that_are_no_file_are_not_replaced(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "net.bin")
    with pytest.raises(ConverterError, match="W301"):
        write(tmp_path / "net.xml", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["net.bin"]


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(ConverterError, match="W301"):
        converter.save(network(), "/dev/full", "onnx")
    assert not Path("/dev/full").is_file() and not [
        p for p in Path("/dev").iterdir() if p.name.startswith(atomic.PREFIX)
    ]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "net.xml").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "net.bin").symlink_to(tmp_path / "nowhere")
    write(tmp_path / "out" / "net.xml", b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"precious" and not (
        tmp_path / "nowhere"
    ).exists()
    assert seen(tmp_path / "out") == dict.fromkeys(("net.xml", "net.bin", "net.map"), b"new")
    assert not (tmp_path / "out" / "net.xml").is_symlink()


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    write(tmp_path / ("x" * 251 + ".xml"), b"new")
    assert len(seen(tmp_path)) == 3


# --- foreign folders


def planted(folder: Path, target: str, mode: int = 0o700, files: tuple[str, ...] = ()) -> Path:
    """A folder like the workspace of a writer that was killed: with the target, and a list that
    names it and `files`, which are there too.
    """
    work = folder / f"{atomic._prefix(target)}0"
    (work / atomic._OLD).mkdir(parents=True, mode=0o700)
    listed = {n: [] for n in (*files, target)}
    for name in listed:
        (work / name).write_bytes(b"planted")
    text = json.dumps({"target": target, "files": listed})
    (work / atomic._LIST).write_text(text)
    (work / atomic._OLD).chmod(0o700)
    work.chmod(mode)
    return work


def contents(folder: Path) -> dict[str, Any]:
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes()
        for p in folder.rglob("*")
        if p.is_symlink() or p.is_file()
    }


def untouched(folder: Path, name: str) -> None:
    """Neither a read nor a write of the target touches anything but the target."""
    before = contents(folder)
    atomic.recover(folder / name)
    atomic.recover_folder(folder)
    assert contents(folder) == before
    write(folder / name, b"new")
    after = contents(folder)
    assert {n: v for n, v in after.items() if n in before} == before
    assert set(after) - set(before) == {name, "net.bin", "net.map"} - set(before)


def test_a_workspace_of_the_same_user_is_completed(tmp_path: Path) -> None:
    planted(tmp_path, "net.xml", files=("net.bin",))
    atomic.recover(tmp_path / "net.xml")
    assert contents(tmp_path) == {"net.xml": b"planted", "net.bin": b"planted"}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o702])
def test_a_folder_that_others_can_write_to_is_left_alone(tmp_path: Path, mode: int) -> None:
    planted(tmp_path, "net.xml", mode)
    untouched(tmp_path, "net.xml")


def test_an_inner_folder_that_others_can_write_to_is_left_alone(tmp_path: Path) -> None:
    (planted(tmp_path, "net.xml") / atomic._OLD).chmod(0o777)
    untouched(tmp_path, "net.xml")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
@pytest.mark.parametrize("inner", ["", atomic._OLD])
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, inner: str) -> None:
    os.chown(planted(tmp_path, "net.xml") / inner, 65534, 65534)
    untouched(tmp_path, "net.xml")


@pytest.mark.parametrize("name", ["victim.txt", "network.bin", "other.xml", "net"])
def test_files_of_others_are_not_taken_for_side_files(tmp_path: Path, name: str) -> None:
    """Whether they exist outside or not."""
    planted(tmp_path, "net.xml", files=(name,))
    untouched(tmp_path, "net.xml")
    shutil.rmtree(tmp_path)
    planted(tmp_path, "net.xml", files=(name,))
    (tmp_path / name).write_bytes(b"precious")
    untouched(tmp_path, "net.xml")


def test_a_side_file_that_the_writer_did_not_find_is_not_replaced(tmp_path: Path) -> None:
    planted(tmp_path, "net.xml", files=("net.bin",))
    (tmp_path / "net.bin").write_bytes(b"precious")
    before = contents(tmp_path)
    atomic.recover(tmp_path / "net.xml")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda p: os.symlink("victim", p)])
def test_paths_that_are_no_file_are_not_moved_out(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    for name in ("net.xml", "net.bin"):
        work = planted(tmp_path, "net.xml", files=("net.bin",))
        (work / name).unlink()
        make(work / name)
        if (work / name).is_dir() and name == "net.xml":  # as a package may be, without a link
            (work / name / "inner").symlink_to(tmp_path)
        atomic.recover(tmp_path / "net.xml")
        assert [p for p in tmp_path.iterdir()] == [work]
        shutil.rmtree(work)


def test_a_link_to_a_folder_is_no_workspace(tmp_path: Path) -> None:
    elsewhere = planted(tmp_path, "net.xml").rename(tmp_path / "elsewhere")
    (tmp_path / f"{atomic._prefix('net.xml')}0").symlink_to(elsewhere)
    untouched(tmp_path, "net.xml")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"target":"net.xml"}', b'{"target":5,"files":{}}',
             b'{"target":"net.xml","files":{"../a":[]}}', b'{"target":"net.xml","files":5}',
             b'{"target":"a.xml","files":{"net.xml":[]}}', b"[" * 60_000],
    ids=str,
)  # fmt: skip
def test_a_list_that_says_nothing_of_the_target_is_not_believed(
    tmp_path: Path, text: bytes
) -> None:
    work = planted(tmp_path, "net.xml")
    (work / atomic._LIST).write_bytes(text)
    untouched(tmp_path, "net.xml")


def test_the_name_binds_a_workspace_to_its_target(tmp_path: Path) -> None:
    """Not only a sum of 32 bits, which other names share."""
    work = planted(tmp_path, "net.xml")
    assert len(work.name) > len(atomic.PREFIX) + 32
    work.rename(tmp_path / work.name.replace(work.name[9:20], "0" * 11))
    untouched(tmp_path, "net.xml")


# --- leftovers of a killed writer, in every command


def test_a_check_completes_the_work_of_a_killed_writer(tmp_path: Path) -> None:
    target = interrupted(tmp_path)
    assert model_files.check(target) == []
    assert left(tmp_path) == []


def test_the_format_is_detected_after_a_killed_writer(tmp_path: Path) -> None:
    assert formats.detect(interrupted(tmp_path)).name == "openvino"


@pytest.mark.parametrize("action", ["load", "check"])
def test_a_read_removes_leftovers_next_to_a_complete_target(tmp_path: Path, action: str) -> None:
    target = tmp_path / "net.xml"
    converter.save(network(), target)
    work = tmp_path / f"{atomic._prefix('net.xml')}0"
    work.mkdir(0o700)
    (work / "net.bin").write_bytes(b"half")
    {"load": converter.load, "check": model_files.check}[action](target)  # type: ignore[operator]
    assert left(tmp_path) == []


def test_a_folder_is_listed_after_a_killed_writer(tmp_path: Path) -> None:
    from converter.commands.batch import plan

    interrupted(tmp_path)
    found = plan.of_folder(tmp_path, ["onnx"], {})
    assert [j.shown for j in found.jobs] == ["net.xml"] and left(tmp_path) == []
    (tmp_path / "net.xml").unlink()
    interrupted(tmp_path)
    (tmp_path / "jobs.toml").write_text('[[job]]\nmodels = "*.xml"\nto = "onnx"\n')
    assert [j.shown for j in plan.of_file(tmp_path / "jobs.toml").jobs] == ["net.xml"]


def interrupted(folder: Path) -> Path:
    """A model whose writer was killed between its renames: all new files are in the workspace."""
    converter.save(network(), folder / "net.xml")
    work = planted(folder, "net.xml", files=("net.bin",))
    for name in ("net.xml", "net.bin"):
        (folder / name).replace(work / name)
    return folder / "net.xml"


def left(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.startswith(atomic.PREFIX)]
