"""Check the words of docstrings, comments and messages against limits that only go down.

    python .ci/words.py [FILE ...]    print the findings of each file that has more than its limit
    python .ci/words.py --lower       write the counts of files that have fewer than their limit

Findings are words that have a standard equivalent ("behind": after), docstrings that begin with a
clause or an adverb, public functions, classes and methods without a docstring, and messages that
are questions or have no verb. `.ci/words.txt` has the limits, one line for each file that has
findings: a count and the path. A file without a line has the limit 0.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_name("words.txt")
FOLDERS = ("converter", "tests")

# a pattern -> what to write instead
WORDS = {
    r"what(?:ever)?": "the noun itself",
    r"behind": "after",
    r"in front": "before",
    r"(?<!decimal )places?(?! of\b|\.py)": "position, index, element or location",
    r"(?:un)?told|tells?": "declare, determine, detect or specify",
    r"turned": "transposed, reversed or converted",
    r"held": "stored or kept",
    r"nobody|somebody": "the consumer, user or producer",
    r"beside": "next to, or as well as",
    r"whole numbers?": "integer",
    r"truth values?": "boolean",
    r"open (?:size|dimension)s?": "dynamic (unknown) shape",
    r"stored numbers?": "quantized value",
    r"(?:quanti|normali|legali|optimi|seriali|initiali|reali)s(?:e[ds]?|ing|ation)": "z",
    r"colour\w*|neighbour\w*|behaviour\w*|centre\w*": "American spelling",
}
_WORDS = {re.compile(rf"\b(?:{k})\b", re.IGNORECASE): v for k, v in WORDS.items()}
_CALL = re.compile(r"netconv \w+ |\w+\(.*\)$")
_CLAUSE = re.compile(r"(?:What|Who|Whoever|Whatever|Which|That|Where|How)\b")
_ADVERB = re.compile(
    r"(?:Also|Although|As|Before|After|Because|Both|For|If(?!,| and)|It|Nothing|Of|Only|Or|Since|"
    r"So|Then|They|Unless|Until|When|Whether|While|With|Without)\b"
)

# calls whose argument at this position is a message, by the last part of their name
MESSAGES = {
    **dict.fromkeys(("MappingError", "not_meant", "Guard", "FirstResult", "InferenceError"), 0),
    **dict.fromkeys(("NoMatch", "WireError", "wrong_call", "refused"), 0),
    **dict.fromkeys(("Diagnostic", "unreadable", "unwritable", "Pass"), 1),
}
KEYWORDS = ("help", "reason")
NAMES = ("message", "help", "reason")  # variables that hold a message
VERBS = """
accept accepts add adds agree agrees allow allows append applies are ask asks attach be begin
begins belong belongs calls can cannot carry causes change changes check choose clamp clamps
close collect color comes compare compares compress compute computes consist contain contains
contradict contradicts convert converts copy counts create cut cuts declare declares decompose
define defines depend depends dequantizes did died differ differs divide do does download draw
drop drops end ends enter exceed exceeds exists exit expands expected explain export extends
failed fails feed fetch find finish finished fit fits fix fold follow follows form forms found
fuse gave give gives got had halves has have ignore ignores implements import include includes
insert install is judge keep keeps lacks leave lie lies limit list load loads lose loses lost
make makes map maps mark match matches may means meant merge move must name names need needs
occurs omit open overlaps overwrite pad pads pass passes pick point points print prints produce
produces provide publish put raise reached read reads receive recompute reduce refer refers
refuse release remove removes rename repeat replace report require requires responds rewrite
rounds run runs said saturates say says select selects set share show shows slice sort specify
split starts stop store stores subtract support supports take takes terminate terminates
translates treat treats trim try unpack unroll use uses warn was were wraps write writes written
wrote
"""
_VERBS = frozenset(VERBS.split())


def findings(source: str, messages: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each finding in a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if text := ast.get_docstring(node, clean=False):
            line = node.body[0].lineno
            yield from _words(line, text)
            if match := _CLAUSE.match(text.lstrip()) or (messages and _ADVERB.match(text.lstrip())):
                yield line, f"docstring begins with {match[0]!r}: name the thing, or its effect"
    yield from _undocumented(tree) if messages else ()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _words(token.start[0], token.string)
    for line, text in _messages(tree) if messages else ():
        yield from _words(line, text)
        yield from _sentence(line, text)


def _undocumented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the public functions, classes and methods without a docstring. Methods of classes with
    a base may override documented ones; properties of one line and functions without statements
    need none.
    """
    nodes: list[ast.stmt] = [*tree.body]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.bases and not node.name.startswith("_"):
            nodes += [n for n in node.body if not _is_short_property(n)]
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and not (
            isinstance(node, ast.FunctionDef) and _is_empty(node)
        ):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield node.lineno, f"public {kind} {node.name} without a docstring"


def _is_short_property(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.FunctionDef)
        and any(
            "property" in ast.unparse(d) or "setter" in ast.unparse(d) for d in node.decorator_list
        )
        and len(node.body) == 1
    )


def _is_empty(node: ast.FunctionDef) -> bool:
    """Return whether a function has no statements: one of several signatures, or a callback."""
    return all(isinstance(s, ast.Pass) or ast.unparse(s) == "..." for s in node.body)


def _words(line: int, text: str) -> Iterator[tuple[int, str]]:
    text = re.sub(r"\b[Ii]n(\s+)place\b", r"\1", re.sub(r"`[^`]*`", "", text))
    for pattern, instead in _WORDS.items():
        for match in pattern.finditer(text):
            at = line + text.count("\n", 0, match.start())
            yield at, f"{match[0]!r}: write {instead}"


def _sentence(line: int, text: str) -> Iterator[tuple[int, str]]:
    plain = re.sub(r"\{\}", " ", text)
    if "?" in plain:
        yield line, f"a question: {text!r}"
    if "{message}" in text or _CALL.match(text):  # another message, or a command to type
        return
    words = re.findall(r"[a-z'A-Z]+", plain)
    if len(words) > 1 and not _VERBS.intersection(w.lower() for w in words):
        yield line, f"no verb: {text!r}"


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the messages of a module, with {} for each computed part."""
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            position = MESSAGES.get(name, len(node.args))
            found += node.args[position : position + 1]
            found += [k.value for k in node.keywords if k.arg in KEYWORDS]
        elif isinstance(node, ast.Assign):
            targets = {t.id for t in node.targets if isinstance(t, ast.Name)}
            found += [node.value] if targets.intersection(NAMES) else []
        for value in found:
            if (text := _text(value)) is not None:
                yield value.lineno, text


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) or "{}" for v in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        return "{message}" if node.value.id in NAMES else None
    return None


def count(paths: Iterable[Path]) -> dict[str, list[tuple[int, str]]]:
    """Return the findings of each file by its path relative to the checkout."""
    found = {}
    for path in paths:
        name = path.resolve().relative_to(ROOT).as_posix()
        listed = sorted(set(findings(path.read_text("utf-8"), name.startswith("converter/"))))
        found[name] = listed
    return found


def limits() -> dict[str, int]:
    """Return the limit of each file that may have findings."""
    lines = LIMITS.read_text("utf-8").splitlines() if LIMITS.exists() else []
    return {path: int(number) for number, path in (line.split() for line in lines)}


def main(arguments: list[str]) -> int:
    given = [Path(a) for a in arguments if not a.startswith("-")]
    paths = given or [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.py"))]
    found, allowed = count(paths), limits()
    if "--lower" in arguments:
        kept = {n: min(len(f), allowed.get(n, len(f))) for n, f in found.items() if f}
        LIMITS.write_text("".join(f"{n} {path}\n" for path, n in sorted(kept.items())), "utf-8")
        return 0
    worse = {n: f for n, f in found.items() if len(f) > allowed.get(n, 0)}
    for name, listed in worse.items():
        print(f"{name}: {len(listed)} findings, limit {allowed.get(name, 0)}")
        for line, text in listed:
            print(f"{name}:{line}: {text}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
