"""Sizes as expressions of named dimensions: `2*H`, `B*T + 1`, `floor(T/2) + 1`.

An expression is a polynomial of atoms with rational coefficients, in a normal form: two sizes are
equal if their expressions are. The text of an expression names a dimension, in the spelling that
onnx_ir and PyTorch's exporter use; onnx_ir's own arithmetic is that of SymPy, whose import takes
longer than most conversions.
"""

from __future__ import annotations

import fractions
import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import onnx_ir as ir

from converter.record import comparable

_NAME = r"[A-Za-z_][\w.]*"
_TOKEN = rf"\s*({_NAME}|\d+|//|[-+*/()])"
# an operator without spaces may be a part of a name: batch-size
_EXPRESSION = r"[-\w.+*/() ]*(?: [+-] |\*|//|floor\()[-\w.+*/() ]*"
# "unk__12" is a name: onnx's inference and tf2onnx number each unknown dimension once
_ANONYMOUS = r"(?i:\W*|\W*\d+\W*|none|unknown.*)"
MOST_TERMS = 12


@comparable
class Floor:
    """A numerator, whose coefficients are integers, divided and rounded down."""

    numerator: Size
    denominator: int


@comparable
class Scaled:
    """A size times a factor in float32, rounded down; exact only in float32."""

    size: Size
    factor: float


@comparable
class Element:
    """A size without a name: a dimension of a value, or an element of a vector of numbers."""

    value: ir.Value
    index: int
    is_dimension: bool


Atom = str | Floor | Scaled | Element
Monomial = tuple[Atom, ...]


class Ratio(NamedTuple):
    """A factor between two sizes; `exact` unless the product is rounded down."""

    factor: float
    exact: bool


def _key(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"~{_of_atom(atom)}"


class Size:
    """A polynomial of atoms; immutable, and hashable by value."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, fractions.Fraction | int] | None = None) -> None:
        self.terms = {m: fractions.Fraction(c) for m, c in (terms or {}).items() if c}
        self._hash = hash(frozenset(self.terms.items()))

    @staticmethod
    def of(atom: Atom | int | fractions.Fraction) -> Size:
        """Return a single atom, or a number."""
        return Size({(): atom} if isinstance(atom, int | fractions.Fraction) else {(atom,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size | int) -> Size:
        terms = dict(self.terms)
        for m, c in _size(other).terms.items():
            terms[m] = terms.get(m, fractions.Fraction(0)) + c
        return Size(terms)

    def __sub__(self, other: Size | int) -> Size:
        return self + _size(other) * -1

    def __mul__(self, other: Size | int | fractions.Fraction) -> Size:
        terms: dict[Monomial, fractions.Fraction] = {}
        for m, c in self.terms.items():
            for n, d in _size(other).terms.items():
                product = tuple(sorted((*m, *n), key=_key))
                terms[product] = terms.get(product, fractions.Fraction(0)) + c * d
        return Size(terms)

    def floordiv(self, divisor: int) -> Size:
        """Return the quotient, rounded down, by a positive integer."""
        return (self * fractions.Fraction(1, divisor)).floor()

    def floor(self) -> Size:
        """Round down; atoms are integers, so that only fractions of coefficients are affected."""
        whole = {m: fractions.Fraction(math.floor(c)) for m, c in self.terms.items()}
        rest = {m: c - whole[m] for m, c in self.terms.items()}
        if not any(c for m, c in rest.items() if m):
            return Size(whole)
        # floor((a*n + c) / (a*d)) = floor((n + floor(c/a)) / d)
        denominator = math.lcm(*(c.denominator for m, c in rest.items() if m))
        constant = math.floor(rest.get((), fractions.Fraction(0)) * denominator)
        numerator = {m: c * denominator for m, c in rest.items() if m}
        inner = Size({**numerator, (): constant})
        return Size(whole) + Size.of(Floor(inner, denominator))

    @property
    def number(self) -> fractions.Fraction | None:
        """Return the value, if it is a number."""
        return self.terms.get((), fractions.Fraction(0)) if self.terms.keys() <= {()} else None

    @property
    def integer(self) -> int | None:
        """Return the value, if it is an integer."""
        number = self.number
        return int(number) if number is not None and number.denominator == 1 else None

    @property
    def is_integral(self) -> bool:
        """Return whether all coefficients are integers."""
        return all(c.denominator == 1 for c in self.terms.values())

    @property
    def atoms(self) -> set[Atom]:
        return {a for m in self.terms for a in m}

    def at_least(self) -> fractions.Fraction | None:
        """Return a lower bound, since no dimension is negative; None if there is none."""
        if any(c < 0 for m, c in self.terms.items() if m):
            return None
        return (
            self.terms.get((), fractions.Fraction(0))
            if all(map(_not_negative, self.atoms))
            else None
        )

    def may_be(self, number: int) -> bool:
        """Return whether the size may have this value, as far as its coefficients show."""
        least, rest = self.at_least(), number - self.terms.get((), fractions.Fraction(0))
        if self.number is not None:
            return rest == 0
        if not self.is_integral or (least is not None and least > number):
            return not self.is_integral
        return int(rest) % math.gcd(*(int(c) for m, c in self.terms.items() if m)) == 0

    def ratio(self, other: Size) -> fractions.Fraction | None:
        """Return the number c with self == c * other; None if there is none."""
        if not other.terms or self.terms.keys() != other.terms.keys():
            return None
        found = {self.terms[m] / c for m, c in other.terms.items()}
        return found.pop() if len(found) == 1 else None

    def divided(self, other: Size) -> Size | None:
        """Return the exact quotient by an expression of one term; None if there is none."""
        if len(other.terms) != 1:
            return None
        ((divisor, c),) = other.terms.items()
        terms = {}
        for m, d in self.terms.items():
            rest = list(m)
            for atom in divisor:
                if atom not in rest:
                    return None
                rest.remove(atom)
            terms[tuple(rest)] = d / c
        return Size(terms)

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def name(self) -> str | None:
        """Return the text that names a dimension of this size; None if it has parts without a
        name.
        """
        named = self.is_integral and len(self.terms) <= MOST_TERMS
        return _text(self) if named and all(map(_has_name, self.atoms)) else None


def _size(value: Size | int | fractions.Fraction) -> Size:
    return value if isinstance(value, Size) else Size.of(value)


def _not_negative(atom: Atom) -> bool:
    if isinstance(atom, Floor):
        least = atom.numerator.at_least()
        return least is not None and least >= 0
    return isinstance(atom, str | Scaled) or atom.is_dimension


def _has_name(atom: Atom) -> bool:
    if isinstance(atom, Floor):
        return all(map(_has_name, atom.numerator.atoms))
    return isinstance(atom, str)


def evaluated(size: Size, numbers: Mapping[str, int]) -> int | None:
    """Return a size with numbers for its names; None if it has others."""
    found = fractions.Fraction(0)
    for monomial, c in size.terms.items():
        for atom in monomial:
            if isinstance(atom, Floor):
                inner = evaluated(atom.numerator, numbers)
                factor = None if inner is None else inner // atom.denominator
            else:
                factor = numbers.get(atom) if isinstance(atom, str) else None
            if factor is None:
                return None
            c *= factor
        found += c
    return int(found) if found.denominator == 1 else None


def factor_between(target: Size, source: Size) -> Ratio | None:
    """Return the factor by which a size is computed from another one; None if there is none."""
    ratio = target.ratio(source)
    if ratio is not None:
        return Ratio(float(ratio), True) if ratio > 0 else None
    (atom, *more) = target.atoms or {""}
    if isinstance(atom, Scaled) and not more and target == Size.of(atom):
        return Ratio(atom.factor, False) if atom.size == source else None
    ratio = _without_rounding(target).ratio(source)
    if ratio is None or ratio <= 0 or (source * ratio).floor() != target:
        return None
    return Ratio(float(ratio), False)


def _without_rounding(size: Size) -> Size:
    """Return an expression with the quotients that its floors round down."""
    found = Size()
    for monomial, c in size.terms.items():
        factors = (
            _without_rounding(a.numerator) * fractions.Fraction(1, a.denominator)
            if isinstance(a, Floor)
            else Size.of(a)
            for a in monomial
        )
        found = found + total(factors) * c
    return found


# text --------------------------------------------------------------------------------------------


def _text(size: Size) -> str:
    parts: list[str] = []
    ordered = sorted(
        size.terms.items(), key=lambda t: (not t[0], -len(t[0]), list(map(_key, t[0])))
    )
    for monomial, c in ordered:
        sign = "-" if c < 0 else "+"
        text = _term(monomial, abs(c))
        if parts:
            parts.append(f" {sign} {text}")
        else:
            parts.append(f"-{text}" if c < 0 else text)
    return "".join(parts) or "0"


def _term(monomial: Monomial, c: fractions.Fraction) -> str:
    factors = [_of_atom(a) for a in monomial]
    if c.numerator != 1 or not factors:
        factors.insert(0, str(c.numerator))
    text = "*".join(factors)
    return text if c.denominator == 1 else f"{text}/{c.denominator}"


def _of_atom(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    if isinstance(atom, Floor):
        inner = _text(atom.numerator)
        return (
            f"floor({inner if len(atom.numerator.terms) == 1 else f'({inner})'}/{atom.denominator})"
        )
    if isinstance(atom, Scaled):
        return f"floor({atom.factor:g} * ({atom.size}))"
    return f"{atom.value.name}[{atom.index}]"


@functools.lru_cache(4096)
def parse(name: str) -> Size | None:
    """Return the expression that a dimension's name spells; a name that is none is an atom.

    None for names such as "?" and "None", which exporters give to different sizes.
    """
    if re.fullmatch(_NAME, name) is None and re.fullmatch(_EXPRESSION, name):
        found = _Parser(name).parse()
        if found is not None:
            return found
    return None if re.fullmatch(_ANONYMOUS, name) else Size.of(name)


class _Parser:
    """sum: [-] product {(+|-) product}; product: factor {(*|//|/) factor}."""

    def __init__(self, text: str) -> None:
        self.tokens = re.findall(_TOKEN, text)
        self.whole = "".join(self.tokens) == text.replace(" ", "")
        self.tokens.append("")

    def parse(self) -> Size | None:
        found = self.sum() if self.whole else None
        return found if self.tokens == [""] and found is not None and found.is_integral else None

    def take(self, *tokens: str) -> str:
        return self.tokens.pop(0) if self.tokens[0] in tokens else ""

    def sum(self) -> Size | None:
        sign = -1 if self.take("-") else 1
        total = self.product()
        total = None if total is None else total * sign
        while total is not None and (operator := self.take("+", "-")):
            other = self.product()
            total = None if other is None else total + other * (1 if operator == "+" else -1)
        return total

    def product(self) -> Size | None:
        total = self.factor()
        while total is not None and (operator := self.take("*", "//", "/")):
            other = self.factor()
            if other is None or operator == "*":
                total = None if other is None else total * other
                continue
            divisor = other.integer
            if divisor is None or divisor < 1:
                return None
            total = (
                total.floordiv(divisor)
                if operator == "//"
                else total * fractions.Fraction(1, divisor)
            )
        return total

    def factor(self) -> Size | None:
        token = self.tokens[0]
        if self.take("floor"):
            found = self.factor() if self.tokens[0] == "(" else None
            return None if found is None else found.floor()
        if self.take("("):
            found = self.sum()
            return found if self.take(")") else None
        if token.isdigit() or re.fullmatch(_NAME, token):
            self.tokens.pop(0)
            return Size.of(int(token) if token.isdigit() else token)
        return None


def total(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    found = Size.of(1)
    for size in sizes:
        found = found * size
    return found
