"""Parses the text of a filter to its syntax tree, by recursive descent.

The grammar; words are reserved, ``{x}`` repeats, ``[x]`` may be left out::

    filter   = or
    or       = and { "or" and }
    and      = not { "and" not }
    not      = "not" not | test
    test     = "(" or ")" | "true" | "false" | "entered" | "left"
             | "changed" "(" field ")"
             | "prefix" "(" subject "," bytes ")"
             | "table" ( equality | "matches" ( text | "(" text { "," text } ")" ) )
             | "op" equality
             | "hash" "(" "key" ")" "%" number equality
             | subject ( equality | order value | "startswith" bytes | "is" [ "not" ] ( "null" | "absent" ) )
             | value order subject [ order value ]              b"a" <= key < b"b"
    equality = ( "==" | "!=" ) value | [ "not" ] "in" "(" value { "," value } ")"
    order    = "==" | "!=" | "<" | "<=" | ">" | ">="
    subject  = "key" [ "[" number "]" ] | field
    field    = part { "." part }
    part     = name | "`" any "`"
    value    = text | bytes | number | "true" | "false"
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final, NoReturn, TypeVar, cast
from typing import Literal as OneOf

from wormhole.filters.lexer import Token, fail, tokenize
from wormhole.filters.tree import (
    RESERVED,
    And,
    Changed,
    Compare,
    Const,
    Expr,
    Field,
    HashIn,
    In,
    Is,
    KeyPart,
    Leaf,
    Literal,
    Moved,
    Not,
    OpIn,
    Or,
    Order,
    StartsWith,
    Subject,
    TableIn,
    TableMatches,
    WholeKey,
)
from wormhole.model.values import Op

__all__ = ["MAX_DEPTH", "parse"]

T = TypeVar("T")

MAX_DEPTH: Final = 64
"""Limit of the nesting of parentheses and ``not``, far from Python's recursion limit in every pass over the tree."""

_ORDERS: Final = ("==", "!=", "<", "<=", ">", ">=")
_TURNED: Final[dict[str, Order]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPS: Final = {op.value: op for op in Op}
_OP_NAMES: Final = ", ".join(f'"{name}"' for name in _OPS)
_TEST: Final = 'table, op, key, key[0], hash(key), prefix(..), changed(..), a field name, a value, not, "("'
_SUBJECT_TAIL: Final = "==, !=, <, <=, >, >=, in, not in, startswith, is null, is absent"
_VALUE: Final = '"text", b"bytes", 0xff00, a number, true, false'
_MAX_INDEX: Final = 1 << 16
_MAX_MODULUS: Final = 1 << 32


def parse(text: str) -> Expr:
    """The tree of a filter.

    Raises :class:`~wormhole.model.errors.FilterError`, which points at the column and names what is allowed.
    """
    parser = _Parser(text)
    expr = parser.either()
    if parser.token.kind != "end":
        parser.expected("and, or, the end of the filter")
    return expr


def _kind(value: Literal) -> str:
    if isinstance(value, bool):
        return "a truth value"
    return "a number" if isinstance(value, int | Decimal) else "text or bytes"


def _turned(test: Leaf, turned: bool) -> Expr:
    return Not(test) if turned else test


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def take(self) -> Token:
        token = self.tokens[self.index]
        if token.kind != "end":
            self.index += 1
        return token

    def sees(self, *texts: str) -> bool:
        return self.token.kind in ("word", "sign") and self.token.text in texts

    def accept(self, text: str) -> bool:
        if self.sees(text):
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(f'"{text}"')

    def expected(self, allowed: str) -> NoReturn:
        token = self.token
        problem = "the filter ends too early" if token.kind == "end" else f"{token.text} does not fit here"
        fail(self.text, token.at, problem, allowed)

    def either(self) -> Expr:
        return self.joined(self.both, "or", Or)

    def both(self) -> Expr:
        return self.joined(self.negation, "and", And)

    def joined(self, part: Callable[[], Expr], word: str, node: type[And] | type[Or]) -> Expr:
        terms = [part()]
        while self.accept(word):
            terms.append(part())
        return terms[0] if len(terms) == 1 else node(tuple(terms))

    def deeper(self, part: Callable[[], Expr], at: int) -> Expr:
        if self.depth == MAX_DEPTH:
            fail(self.text, at, f"nested deeper than {MAX_DEPTH}")
        self.depth += 1
        expr = part()
        self.depth -= 1
        return expr

    def negation(self) -> Expr:
        at = self.token.at
        if self.accept("not"):
            return Not(self.deeper(self.negation, at))
        return self.test()

    def test(self) -> Expr:
        token = self.token
        if token.kind == "value":
            return self.value_first()
        if token.kind == "name" or (token.kind == "word" and token.text not in RESERVED):
            return self.subject_test(self.subject(), token.at)
        if token.kind == "sign" and token.text == "(":
            self.take()
            expr = self.deeper(self.either, token.at)
            self.expect(")")
            return expr
        return self.word_test(token)

    def word_test(self, token: Token) -> Expr:
        match token.text if token.kind == "word" else "":
            case "true" | "false":
                if self.tokens[self.index + 1].text in _ORDERS:
                    return self.value_first()
                return Const(self.take().text == "true")
            case "entered":
                self.take()
                return Moved("entered", at=token.at)
            case "left":
                self.take()
                return Moved("left", at=token.at)
            case "changed":
                return self.changed()
            case "prefix":
                return self.prefix()
            case "table":
                return self.table_test()
            case "op":
                return self.op_test()
            case "hash":
                return self.hash_test()
            case "key":
                return self.subject_test(self.subject(), token.at)
            case _:
                return self.expected(_TEST)

    # --- subjects and values ----------------------------------------------------------------------------------

    def name(self) -> str:
        token = self.token
        if token.kind == "name":
            self.take()
            return str(token.value)
        if token.kind != "word" or token.text in RESERVED:
            self.expected("a field name (a reserved word or other signs: in backticks)")
        return self.take().text

    def field(self) -> Field:
        name = self.name()
        path: list[str] = []
        while self.accept("."):
            token = self.token
            if token.kind not in ("word", "name"):
                self.expected("the name of a part (other signs: in backticks)")
            self.take()
            path.append(str(token.value) if token.kind == "name" else token.text)
        if len(path) >= MAX_DEPTH:
            fail(self.text, self.token.at, f"a field has at most {MAX_DEPTH} parts")
        return Field(name, tuple(path))

    def subject(self) -> Subject:
        if not self.accept("key"):
            return self.field()
        if not self.accept("["):
            return WholeKey()
        index = self.number("the number of a key column, from 0", 0, _MAX_INDEX)
        self.expect("]")
        return KeyPart(index)

    def number(self, allowed: str, least: int, limit: int) -> int:
        token = self.token
        value = token.value
        if token.kind != "value" or not isinstance(value, int) or not least <= value < limit:
            self.expected(allowed)
        self.take()
        return value

    def value(self) -> Literal:
        token = self.token
        if token.kind == "word" and token.text in ("true", "false"):
            return self.take().text == "true"
        if token.kind == "word" and token.text == "null":
            fail(self.text, token.at, "nothing is compared with null", "is null, is not null")
        if token.kind != "value" or token.value is None:
            self.expected(_VALUE)
        self.take()
        return token.value

    def string(self, allowed: str) -> str:
        value = self.token.value
        if self.token.kind != "value" or not isinstance(value, str):
            self.expected(allowed)
        self.take()
        return value

    def bytes_like(self) -> bytes | str:
        value = self.token.value
        if self.token.kind != "value" or not isinstance(value, bytes | str):
            self.expected('"text", b"bytes", 0xff00')
        self.take()
        return value

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        self.expect("(")
        items = [item()]
        while self.accept(","):
            items.append(item())
        self.expect(")")
        return tuple(items)

    def equality(self, item: Callable[[], T], allowed: str) -> tuple[bool, tuple[T, ...]]:
        """Whether the test is negated, and the values that it tests for."""
        if self.accept("=="):
            return False, (item(),)
        if self.accept("!="):
            return True, (item(),)
        turned = self.accept("not")
        if not self.accept("in"):
            self.expected("in" if turned else allowed)
        return turned, self.listed(item)

    # --- tests ------------------------------------------------------------------------------------------------

    def changed(self) -> Expr:
        at = self.take().at
        self.expect("(")
        # People often write a name in quotes. Its meaning is clear.
        value = self.token.value
        if self.token.kind == "value" and isinstance(value, str) and value:
            field = Field(value)
            self.take()
        else:
            field = self.field()
        self.expect(")")
        return Changed(field, at=at)

    def prefix(self) -> Expr:
        at = self.take().at
        self.expect("(")
        subject = self.subject()
        self.expect(",")
        start = self.bytes_like()
        self.expect(")")
        return StartsWith(subject, start, at=at)

    def table_test(self) -> Expr:
        at = self.take().at
        if self.accept("matches"):
            allowed = 'a pattern such as "shop.*", or several in parentheses'
            if self.sees("("):
                return TableMatches(self.listed(lambda: self.string(allowed)), at=at)
            return TableMatches((self.string(allowed),), at=at)
        turned, names = self.equality(lambda: self.string('"a table name"'), "==, !=, in, not in, matches")
        return _turned(TableIn(names, at=at), turned)

    def op_name(self) -> Op:
        token = self.token
        name = token.value if token.kind == "value" else None
        if not isinstance(name, str):
            self.expected(_OP_NAMES)
        if name not in _OPS:
            fail(self.text, token.at, f"{token.text} is no operation", _OP_NAMES)
        self.take()
        return _OPS[name]

    def op_test(self) -> Expr:
        at = self.take().at
        turned, ops = self.equality(self.op_name, "==, !=, in, not in")
        return _turned(OpIn(ops, at=at), turned)

    def hash_test(self) -> Expr:
        at = self.take().at
        for sign in ("(", "key", ")", "%"):
            self.expect(sign)
        modulus = self.number("a number of parts from 1 to 4294967295", 1, _MAX_MODULUS)
        turned, remainders = self.equality(
            lambda: self.number(f"a remainder from 0 to {modulus - 1}", 0, modulus), "==, !=, in, not in"
        )
        return _turned(HashIn(modulus, remainders, at=at), turned)

    def subject_test(self, subject: Subject, at: int) -> Expr:
        if self.accept("startswith"):
            return StartsWith(subject, self.bytes_like(), at=at)
        if self.accept("is"):
            turned = self.accept("not")
            words: tuple[OneOf["null", "absent"], ...] = ("null", "absent")
            for what in words:
                if self.accept(what):
                    return _turned(Is(subject, what, at=at), turned)
            self.expected("null, absent" if turned else "null, absent, not null, not absent")
        if self.sees("not", "in"):
            first = self.index
            turned, values = self.equality(self.value, _SUBJECT_TAIL)
            kinds = {_kind(value) for value in values}
            if len(kinds) > 1:
                fail(
                    self.text,
                    self.tokens[first].at,
                    f"the list mixes {' and '.join(sorted(kinds))}",
                    "one kind of value",
                )
            return _turned(In(subject, values, at=at), turned)
        if not self.sees(*_ORDERS):
            self.expected(_SUBJECT_TAIL)
        order = self.take().text
        return self.comparison(subject, order, self.value(), at)

    def comparison(self, subject: Subject, order: str, value: Literal, at: int) -> Expr:
        if order == "!=":
            return Not(Compare(subject, "==", value, at=at))
        if isinstance(value, bool) and order != "==":
            fail(self.text, at, f"true and false have no order: {order} cannot be decided", "==, !=")
        return Compare(subject, cast(Order, order), value, at=at)

    def value_first(self) -> Expr:
        at = self.token.at
        value = self.value()
        if not self.sees(*_ORDERS):
            self.expected("==, !=, <, <=, >, >= and then key or a field name")
        order = self.take().text
        subject = self.subject()
        left = self.comparison(subject, _TURNED.get(order, order), value, at)
        if not self.sees("<", "<=", ">", ">="):
            return left
        sign = self.take()
        if order not in _TURNED or order[0] != sign.text[0]:
            fail(self.text, sign.at, "a range reads in one direction", 'b"a" <= key < b"b"')
        right_at = self.token.at
        return And((left, self.comparison(subject, sign.text, self.value(), right_at)))
