"""The declaration of an option as a field of a class, and the forms derived from such a class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from enum import Enum
from operator import attrgetter
from types import UnionType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, dataclass_transform

from converter.record import record

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
P = ParamSpec("P")
Own = TypeVar("Own", bound="Options")
R = TypeVar("R")
T = TypeVar("T")
_METADATA = "netconv.option"


class Group(Enum):
    """The titles of the help, in its order."""

    INPUT = "Input"
    CHANGES = "Changes"
    EXECUTION = "Execution"
    COMPARISON = "Comparison"
    LABELS = "Labels"
    OUTPUT = "Output"
    GENERAL = "General"


class Kind(Enum):
    """The syntax of an option's text; converter.cli.options has a parser for each."""

    TEXT = "text"
    FLAG = "flag"
    COUNT = "count"
    INTEGER = "integer"
    NUMBER = "number"
    NUMBERS = "numbers"
    CHOICE = "choice"
    FORMAT = "format"
    TARGET = "format with flavors"
    ENGINE = "engine"
    CODE = "code"
    SHAPES = "NAME:SHAPE"
    VALUES = "NAME=VALUE"
    PAIRS = "NAME=NAME"
    FILE = "local path"
    SOURCE = "file to read"
    PLACE = "path or URL to write"
    DATA = "inputs to run on"
    MAP = "map of names"
    MAX_OUTPUT = "largest output"


@record
class Option:
    """A field as an option of the command line and elsewhere.


    `flags` are its spellings, by default the field's name; `aliases` are further spellings, which
    are accepted and not shown; `metavar` is the name of its value in the help. A `repeatable` one
    collects its values; `choices` are all values of a choice, or beginnings of those of a text.
    `least` and `most` limit numbers. A `settable` one may be set in a settings file or the
    environment, which is not useful for files and names of one call. `job` is the type of its key
    in a job file; `python` is the description for Python, where that of the command line (`help`)
    does not fit.
    """

    help: str
    group: Group
    kind: Kind = Kind.TEXT
    flags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    required: bool = False
    least: float | None = None
    most: float | None = None
    settable: bool = False
    job: type | UnionType | None = None
    python: str = ""


def option(
    *,
    help: str,
    group: Group,
    default: Any = MISSING,
    kw_only: bool = True,
    **more: Any,
) -> Any:
    """Return a field that is an option; `more` are other fields of Option. `kw_only=False` is for
    those that Python takes by position.
    """
    metadata = {_METADATA: Option(help, group, **more)}
    return field(default=default, kw_only=kw_only, metadata=metadata)


@dataclass_transform(
    eq_default=False, frozen_default=True, kw_only_default=True, field_specifiers=(option, field)
)
def options(cls: type[C]) -> type[C]:
    """Decorate a class of options: a frozen dataclass. Python takes thirty times as long to create
    a frozen class with an `__init__` of its own, and a command creates some tens of them when it
    starts; here all share the methods of Options.
    """
    cls.__doc__ = cls.__doc__ or "Options."  # else a dataclass makes one, slowly
    return dataclass(init=False, repr=False, eq=False, match_args=False)(cls)


@options
class Options:
    """The base of all classes of options, and the options of a command without any. `spelled` gives
    fields of base classes other flags.
    """

    spelled: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, *arguments: Any, **given: Any) -> None:
        cls: Any = type(self)
        values = signature_of(cls).bind(*arguments, **given)
        values.apply_defaults()
        for name, value in values.arguments.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


@functools.cache
def signature_of(cls: Any) -> inspect.Signature:
    """Return the parameters that create options of a class: its fields."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(
            f.name,
            kinds[bool(f.kw_only)],
            default=inspect.Parameter.empty if f.default is MISSING else f.default,
            annotation=f.type,
        )
        for f in fields(cls)
    ]
    return inspect.Signature(sorted(found, key=attrgetter("kind")))


@record
class Declared:
    """A field and its option, with the flags that its class gives it. `name` is the long flag
    without dashes, which is also the key of settings and job files.
    """

    field: Field[Any]
    option: Option
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        return max(self.flags, key=_is_long).lstrip("-")

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the hidden spellings."""
        return tuple(a for a in self.option.aliases if a not in self.flags)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of a job file: the name first, then hidden spellings."""
        return self.name, *(a.lstrip("-") for a in self.aliases)

    @property
    def variable(self) -> str | None:
        """Return the environment variable, where there is one."""
        if not self.option.settable:
            return None
        return f"NETCONV_{self.name.replace('-', '_').upper()}"


def _is_long(flag: str) -> bool:
    return flag.startswith("--")


def declared(cls: type[Options]) -> Iterator[Declared]:
    """Return the options of a class in their order. Fields without an option are for
    Python only.
    """
    for f in fields(cls):
        if (found := f.metadata.get(_METADATA)) is not None:
            own = cls.spelled.get(f.name) or found.flags or (f"--{f.name.replace('_', '-')}",)
            yield Declared(f, found, own)


def job_keys(cls: type[Options]) -> dict[str, Any]:
    """Return the keys that a job file may have for a class, with the types of their values."""
    return {k: d.option.job for d in declared(cls) if d.option.job is not None for k in d.keys}


def renamed_keys(cls: type[Options], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a job file, with outdated spellings of keys replaced by the current
    names.
    """
    names = {k: d.name for d in declared(cls) if d.option.job is not None for k in d.keys}
    return {names.get(k, k): v for k, v in data.items()}


def of_job(cls: type[Own], data: Mapping[str, Any], **more: Any) -> Own:
    """Return the options for the keys of a job file; `more` has values of fields that the file does
    not set, or other defaults.
    """
    given = {
        d.field.name: data[key]
        for d in declared(cls)
        if d.option.job is not None
        for name in d.keys
        for key in (name, name.replace("-", "_"))
        if key in data
    }
    return cls(**{**more, **given})


def common(cls: type[Own], other: Options) -> Own:
    """Return options of one class with the values of another class that has some fields in
    common.
    """
    return cls(**{f.name: getattr(other, f.name) for f in fields(cls) if hasattr(other, f.name)})


def takes(
    cls: Callable[P, T],
) -> Callable[[Callable[[A, B, T], R]], Callable[Concatenate[A, B, P], R]]:
    """Turn a function of two arguments and options into one of two arguments and the fields of the
    options, by name, and by position where the class allows it.
    """

    def decorate(body: Callable[[A, B, T], R]) -> Callable[Concatenate[A, B, P], R]:
        own = inspect.signature(body)
        first, second = list(own.parameters.values())[:2]
        more = signature_of(cls)
        whole = own.replace(parameters=[first, second, *more.parameters.values()])

        @functools.wraps(body)
        def call(*arguments: Any, **keywords: Any) -> R:
            try:
                given = whole.bind(*arguments, **keywords).arguments
            except TypeError as e:
                raise TypeError(f"{body.__name__}() {e}") from None
            a, b = given.pop(first.name), given.pop(second.name)
            return body(a, b, cls(**given))  # type: ignore[call-arg]

        call.__signature__ = whole  # type: ignore[attr-defined]
        call.__doc__ = "\n".join([inspect.getdoc(body) or "", "", *_described(cls)])
        return call

    return decorate


def _described(cls: Any) -> Iterator[str]:
    """A line for each option, for `help()`."""
    yield "Options:"
    for d in declared(cls):
        yield f"    {d.field.name}: {d.option.python or d.option.help}"
