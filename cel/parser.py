"""Tokens -> the syntax tree, macros expanded; by precedence, one function a level of the grammar."""

from typing import Any

from cel import lexer, macros, tree, values

_RELATION = 2
_STRENGTH = {"||": 0, "&&": 1} | dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), _RELATION)
_STRENGTH |= dict.fromkeys("+-", _RELATION + 1) | dict.fromkeys("*/%", _RELATION + 2)
_DEEP = 120
"""Less than the 250 of the API server, so that what comes after stays within Python's own limit."""


def parse(text: str) -> tree.Node:
    """Raises Invalid with the place where the text stops being CEL."""
    parser = _Parser(text)
    found = parser.expression()
    if parser.now.kind != "end":
        raise parser.unexpected()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(lexer.tokens(text))
        self._next = 0
        self._depth = 0

    @property
    def now(self) -> lexer.Token:
        return self._tokens[self._next]

    def unexpected(self) -> Exception:
        return self._wrong(self.now.at, f"syntax error at {self.now.text[:40]!r}")

    def expression(self) -> tree.Node:
        self._depth += 1
        if self._depth > _DEEP:
            raise self._deep(self.now.at)
        found = self._operation(0)
        if (mark := self._took("?")) is not None:
            then = self._operation(0)
            self._must(":")
            found = tree.Call(mark.at, "_?_:_", None, (found, then, self.expression()))
        self._depth -= 1
        return found

    def _operation(self, level: int) -> tree.Node:
        """Operators that bind as strongly as those of `level` or more."""
        found, count = self._unary(), 0
        while self.now.kind == "mark" and _STRENGTH.get(self.now.text, -1) >= level:
            word, strength = self.now.text, _STRENGTH[self.now.text]
            if strength < _RELATION:
                found = self._chain(word, strength, found)
                continue
            count += 1
            mark = self._tokens[self._next]
            self._next += 1
            if count > _DEEP:
                raise self._deep(mark.at)
            found = tree.Call(
                mark.at, "@in" if word == "in" else f"_{word}_", None, (found, self._operation(strength + 1))
            )
        return found

    def _chain(self, word: str, strength: int, first: tree.Node) -> tree.Node:
        """A chain of && or || becomes a balanced tree: its order of evaluation is the same, its depth is not."""
        terms, marks = [first], []
        while (mark := self._took(word)) is not None:
            marks.append(mark.at)
            terms.append(self._operation(strength + 1))
        return _balanced(f"_{word}_", terms, marks)

    def _unary(self) -> tree.Node:
        at, signs = self.now.at, 0
        word = self.now.text if self.now.kind == "mark" and self.now.text in "!-" else ""
        while word and self._took(word):
            signs += 1
        negative = word == "-" and signs == 1 and _is_number(self.now)
        found = self._member(negative=negative)
        if signs % 2 == 0 or negative:
            return found
        return tree.Call(at, "-_" if word == "-" else "!_", None, (found,))

    def _member(self, *, negative: bool) -> tree.Node:
        found, count = self._primary(negative=negative), 0
        while (mark := self._took(".", "[")) is not None:
            count += 1
            if count > _DEEP:
                raise self._deep(mark.at)
            optional = self._took("?") is not None
            if mark.text == "[":
                index = self.expression()
                self._must("]")
                found = tree.Call(mark.at, "_[?_]" if optional else "_[_]", None, (found, index))
                continue
            name = self._name()
            if not optional and (call := self._took("(")) is not None:
                found = self._called(call.at, name.text, found, self._list(")"))
            elif optional:
                found = tree.Call(mark.at, "_?._", None, (found, tree.Literal(name.at, name.text)))
            else:
                found = tree.Select(mark.at, found, name.text)
        return found

    def _primary(self, *, negative: bool) -> tree.Node:
        token = self.now
        if token.kind == "value":
            self._next += 1
            return tree.Literal(token.at, self._signed(token, negative=negative))
        if self._took("("):
            found = self.expression()
            self._must(")")
            return found
        if self._took("["):
            marks: list[bool] = []
            elements = self._list("]", marks)
            return tree.List(token.at, elements, frozenset(at for at, mark in enumerate(marks) if mark))
        if self._took("{"):
            return tree.Map(token.at, self._entries())
        self._took(".")  # names are looked up from the root in any case
        name = self._name()
        if name.text in lexer.RESERVED:
            raise self._wrong(name.at, f"reserved identifier: {name.text}")
        if (call := self._took("(")) is not None:
            return self._called(call.at, name.text, None, self._list(")"))
        return tree.Ident(name.at, name.text)

    def _called(self, at: int, function: str, target: tree.Node | None, args: tuple[tree.Node, ...]) -> tree.Node:
        try:
            return macros.expand(at, function, target, args) or tree.Call(at, function, target, args)
        except macros.Misused as error:
            raise self._wrong(error.at, error.message) from error

    def _list(self, end: str, marks: list[bool] | None = None) -> tuple[tree.Node, ...]:
        """Up to `end`. Where `marks` are kept, elements may have a question mark before and a comma may stand last."""
        found: list[tree.Node] = []
        while not self._ends(end, started=bool(found), loose=marks is not None):
            if marks is not None:
                marks.append(self._took("?") is not None)
            found.append(self.expression())
        return tuple(found)

    def _entries(self) -> tuple[tree.Entry, ...]:
        found: list[tree.Entry] = []
        while not self._ends("}", started=bool(found), loose=True):
            optional = self._took("?") is not None
            name = self.expression()
            self._must(":")
            found.append(tree.Entry(name, self.expression(), optional))
        return tuple(found)

    def _ends(self, end: str, *, started: bool, loose: bool) -> bool:
        """Whether the list is over; if not, its comma was taken. `loose`: a comma may stand last."""
        if self._took(end):
            return True
        comma = self._took(",") is not None
        if comma and loose and self._took(end):
            return True
        if comma is not started:
            raise self.unexpected()
        return False

    def _signed(self, token: lexer.Token, *, negative: bool) -> Any:
        value = token.value
        if type(value) is int and value > values.INT_MAX and not negative:
            raise self._wrong(token.at, "invalid int literal")
        return -value if negative else value

    def _name(self) -> lexer.Token:
        if self.now.kind != "name":
            raise self.unexpected()
        self._next += 1
        return self._tokens[self._next - 1]

    def _took(self, *words: str) -> lexer.Token | None:
        token = self.now
        if token.kind != "mark" or token.text not in words:
            return None
        self._next += 1
        return token

    def _must(self, word: str) -> None:
        if self._took(word) is None:
            raise self.unexpected()

    def _deep(self, at: int) -> Exception:
        return self._wrong(at, f"nested more than {_DEEP} deep")

    def _wrong(self, at: int, message: str) -> Exception:
        return lexer.wrong(self._text, at, message)


def _balanced(function: str, terms: list[tree.Node], marks: list[int]) -> tree.Node:
    if len(terms) == 1:
        return terms[0]
    middle = (len(terms) + 1) // 2
    left = _balanced(function, terms[:middle], marks[: middle - 1])
    return tree.Call(marks[middle - 1], function, None, (left, _balanced(function, terms[middle:], marks[middle:])))


def _is_number(token: lexer.Token) -> bool:
    return token.kind == "value" and type(token.value) in (int, float)
