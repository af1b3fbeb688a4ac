"""Options, fixtures and profiles for every test.

* `--record` rewrites the files that golden tests compare with (the fixture `record` is True then).
* `corpus` is the folder of real cases; tests that ask for it carry the mark `corpus` and are
  skipped, with the reason, where there is none.
  For one test per case use `support.corpus_cases`.
* `@pytest.mark.sampled(n)`: of the parameters of a test each n-th is for every day, the others are
  slow. With stacked parameters take an n
  that divides none of their numbers, so that every value comes.
* Temporary files are in memory where there is plenty of it; `TMPDIR=/tmp make test` has them on the
  disk.
* hypothesis runs the same examples every time; HYPOTHESIS_PROFILE=explore looks for new ones.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Read when numpy is imported: its threads wait for each other in loops, at the cost of the other
# workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Engines that tests import themselves phone as little as those that netconv imports.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, settings

import networks
import orphans
import warm_children
from support import NO_CORPUS, corpus_folder

# Tests start hundreds of processes: they share compiled modules in any environment.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

# Temporary files are in memory where there is plenty: a folder on a disk takes ten times as long.
# The workers of xdist and all children inherit the variables.
SHARED, ROOM = "/dev/shm", 8 << 30
if (
    not os.environ.get("TMPDIR")
    and os.access(SHARED, os.W_OK | os.X_OK)
    and not os.statvfs(SHARED).f_flag & getattr(os, "ST_NOEXEC", 0)
    and min(shutil.disk_usage(SHARED).free, psutil.virtual_memory().available) >= ROOM
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", SHARED)  # folders of failed tests stay
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-", dir=SHARED)
    orphans.FOLDERS.append(tempfile.tempdir)

# `nohup make test &` starts with signals ignored, and every child would inherit that. A signal with
# a handler is reset to its default in a child; the handler itself ignores the signal as before.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

FRESH = np.random.PCG64(7).state  # of a generator
WATCHER = pytest.StashKey[subprocess.Popen[bytes]]()

settings.register_profile(
    "everyday",
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="rewrite the expected results of golden tests instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected, all of which stay
    if not hasattr(config, "workerinput"):  # once for a run, not in each worker of xdist
        config.stash[WATCHER] = orphans.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    if WATCHER in config.stash:
        config.stash[WATCHER].communicate()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counts: Counter[str] = Counter()
    for item in items:
        if "corpus" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.corpus)
        sampled = item.get_closest_marker("sampled")
        if sampled:
            test = item.nodeid.partition("[")[0]
            if counts[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            counts[test] += 1
    # the slow ones first: a long one at the end would leave the other workers idle, although they
    # take tests from busy ones (see the Makefile)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    gc.freeze()  # 30,000 tests are not looked at for each network that is freed
    gc.set_threshold(20_000, 10, 10)  # nor are the caches of a long run, again and again
    gc.enable()


@functools.cache
def generators_of(module: ModuleType) -> list[np.random.Generator]:
    return [v for v in vars(module).values() if isinstance(v, np.random.Generator)]


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """The generators of a module start anew for every test: it sees the same numbers alone, in any
    order and on any worker.
    """
    for module in (request.module, networks):
        for generator in generators_of(module):
            generator.bit_generator.state = FRESH


@pytest.fixture(autouse=True, scope="session")
def warm_engines() -> Iterator[None]:
    """Engines that run files in processes of their own begin with their packages imported."""
    from converter.engines import file
    from converter.formats.coreml.coreai import bindings

    with warm_children.warm(file.run_captured) as run, pytest.MonkeyPatch.context() as patch:
        for module in (file, bindings):
            patch.setattr(module, "run_captured", run)
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced_files() -> Iterator[None]:
    """No file waits for the disk: it takes milliseconds, and only a machine that loses its power
    shows the difference. A descriptor that cannot be synced is still refused.
    """
    sync = os.fsync

    def fsync(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        mode = os.fstat(number).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            sync(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


@pytest.fixture
def record(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    folder = corpus_folder()
    if folder is None:
        pytest.skip(NO_CORPUS)
    return folder
