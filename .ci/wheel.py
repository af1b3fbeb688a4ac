"""What a user gets: builds the source distribution, from that the wheel, installs it without extras
in an environment of its own, and runs the console blocks of README.md and of docs/start.md there,
in an empty folder beside a copy of the samples. Prints what differs; exit code 1 then.

    python .ci/wheel.py FOLDER [DIST]

With DIST, a folder of distributions, those are tried and none is built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "docs/start.md")


def main(folder: Path, dist: Path | None = None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    tools, bare = (folder / name for name in ("tools", "bare"))
    for place in (tools, bare):
        venv.create(place, with_pip=True)
    pip(tools, "pytest")
    if dist is None:
        pip(tools, "build")
        dist = folder / "dist"
        call(tools, "-m", "build", "--outdir", str(dist), str(ROOT))
    (wheel,) = dist.glob("*.whl")
    pip(bare, str(wheel))
    call(tools, __file__, str(folder), "follow")  # where pytest is, which the tests' modules need


def follow(python: Path, folder: Path) -> int:
    """Runs the documents' commands with the environment of `python`; the number of documents that
    say something else.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    import golden

    def run(line: str, place: Path) -> str:
        return golden.run(line, place, [str(python), "-P", "-m", "converter.cli"], path="")

    wrong = 0
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        place = folder / Path(name).stem
        place.mkdir()
        played = golden.play(text, place, run)
        if played != text:
            wrong += 1
            print("\n".join(golden.changes(text, played, name)))
    print(f"{len(DOCUMENTS)} documents, {wrong} wrong")
    return int(bool(wrong))


def pip(place: Path, *packages: str) -> None:
    call(place, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages)


def call(place: Path, *arguments: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([str(place / "bin" / "python"), *arguments], check=True, env=environment)


if __name__ == "__main__":
    place = Path(sys.argv[1]).absolute()
    if sys.argv[2:] == ["follow"]:
        sys.exit(follow(place / "bare" / "bin" / "python", place))
    main(place, *(Path(p).absolute() for p in sys.argv[2:]))
