"""Reading a plan: one line of text to data, with errors that point at the place.

    plan   := group ("|" group)*
    group  := together ["*" replicas] ["@" device]
    together := fragment | together "+" together | "(" together ")"

A group of several fragments takes copies or a device only in parentheses: ``env+act*4`` is refused, because half of its
readers would take it for ``env | act*4``. Replicas are a number, or ``auto`` (or a capital letter, as in the table of
named plans): as many as suit the machine.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from weft.core.errors import PlanError
from weft.plans.plan import FRAGMENT_NAME, Device, Group, Plan

OPERATORS = "'+' puts fragments together, '|' separates groups, '*' makes replicas, '@' says where."
EXAMPLE = "A plan is one line, such as 'env+act+learn' or '(env+act)*4 | learn@gpu'."


class _Token(NamedTuple):
    kind: str  # an operator itself, or "fragment", "replicas", "device", "end"
    text: str
    at: int  # where it starts in the plan's text


def parse(text: str) -> Plan:
    """The plan that ``text`` writes; ``PlanError`` with a caret under the place where it cannot be read.

    ``parse(str(plan)) == plan`` for every plan. Named plans are not known here: see ``weft.plans.resolve``.
    """
    if not text.strip():
        raise PlanError(f"the plan is empty. {EXAMPLE}")
    return _Reader(text).plan()


class _Reader:
    """Reads tokens from left to right; ``position`` is the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self.split())
        self.position = 0

    def split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self.text):
            if self.text[at].isspace():
                at += 1
                continue
            after = tokens[-1].kind if tokens else ""
            if after in ("*", "@") and (match := re.compile(r"[^\s|+*@()]+").match(self.text, at)):
                token = _Token("replicas" if after == "*" else "device", match[0], at)
            elif self.text[at] in "|+*@()":
                token = _Token(self.text[at], self.text[at], at)
            elif match := re.compile(FRAGMENT_NAME).match(self.text, at):
                token = _Token("fragment", match[0], at)
            else:
                self.fail(f"expected a fragment's name or an operator, got {self.text[at]!r}", at, OPERATORS)
            tokens.append(token)
            at += len(token.text)
        return [*tokens, _Token("end", "", len(self.text.rstrip()))]

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def take(self, kind: str) -> _Token | None:
        """The next token if it is of this kind, else nothing."""
        if self.next.kind != kind:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def plan(self) -> Plan:
        groups = [self.group()]
        while self.take("|"):
            groups.append(self.group())
        if self.next.kind != "end":
            self.expected("'+', '|', '*', '@' or the end")
        return Plan(tuple(groups))

    def group(self) -> Group:
        start = self.position
        names = self.together()
        bare = len(names) > 1 and not self.wrapped(start)
        if bare and self.next.kind in ("*", "@"):
            self.not_one_group(start)
        replicas = self.replicas()
        device = self.device()
        if self.next.kind == "+":  # there was a suffix, else together() had gone on
            self.not_one_group(start)
        if device is not None and self.next.kind == "*":
            copies = self.tokens[self.position + 1].text or "N"
            self.fail(
                "replicas come before the device", self.next.at, f"Write '{self.sum_of(names)}*{copies}@{device}'."
            )
        return Group(tuple(names), replicas, device)

    def together(self) -> list[str]:
        names = self.atom()
        while self.take("+"):
            names += self.atom()
        return names

    def atom(self) -> list[str]:
        if token := self.take("fragment"):
            return [token.text]
        opening = self.take("(")
        if opening is None:
            self.expected("a fragment's name or '('")
        inside = self.position
        names = self.together()
        if self.next.kind in ("*", "@"):
            self.not_one_group(inside)
        if self.next.kind == "|":
            self.fail("'|' inside parentheses: they hold fragments joined by '+'", self.next.at, OPERATORS)
        if not self.take(")"):
            self.expected(f"'+', or ')' for the '(' at character {opening.at + 1}")
        return names

    def replicas(self) -> int | None:
        if not self.take("*"):
            return 1
        token = self.take("replicas")
        if token is None:
            self.expected("a number of replicas after '*'")
        if token.text == "auto" or re.fullmatch("[A-Z]", token.text):
            return None
        if not re.fullmatch(r"[0-9]{1,9}", token.text):
            self.fail(f"expected a number of replicas (or 'auto') after '*', got {token.text!r}", token.at)
        if int(token.text) < 1:
            self.fail(
                "a group needs at least 1 replica", token.at, "Leave the fragment out of the algorithm's graph instead."
            )
        return int(token.text)

    def device(self) -> Device | None:
        if not self.take("@"):
            return None
        token = self.take("device")
        if token is None:
            self.expected("a device after '@': cpu, gpu, gpu:0, gpu:0-3 or node:NAME")
        try:
            return Device.from_text(token.text)
        except PlanError as error:
            self.fail(str(error), token.at)

    def wrapped(self, start: int) -> bool:
        """Whether the tokens from ``start`` to here are one parenthesis, all around."""
        depth = 0
        for token in self.tokens[start : self.position]:
            depth += {"(": 1, ")": -1}.get(token.kind, 0)
            if depth == 0 and token is not self.tokens[self.position - 1]:
                return False
        return True

    @staticmethod
    def sum_of(names: list[str]) -> str:
        return f"({'+'.join(names)})" if len(names) > 1 else names[0]

    def not_one_group(self, start: int) -> NoReturn:
        """Refuse ``env+act*4``, ``env*4+act`` and ``(env*4)``, with the things they may mean."""
        rest = self.tokens[start:]
        place = next(i for i, t in enumerate(rest) if t.kind in ("*", "@"))
        after = next(i for i, t in enumerate(rest) if i > place and t.kind not in ("*", "@", "replicas", "device"))
        stop = next(i for i, t in enumerate(rest) if t.kind in ("|", ")", "end") and i > place)
        suffix = "".join(t.text for t in rest[place:after])
        left = [t.text for t in rest[:place] if t.kind == "fragment"]
        right = [t.text for t in rest[after:stop] if t.kind == "fragment"]
        if right:
            apart = f"{self.sum_of(left)}{suffix} | {'+'.join(right)}"
        else:
            apart = " | ".join(["+".join(left[:-1]), f"{left[-1]}{suffix}"] if left[:-1] else [f"{left[-1]}{suffix}"])
        choices = dict.fromkeys((f"{self.sum_of(left + right)}{suffix}", apart))
        self.fail(
            f"replicas and devices belong to a whole group: which fragments is '{suffix}' for?",
            rest[place].at,
            "Write " + ", or ".join(f"'{choice}'" for choice in choices) + ".",
        )

    def expected(self, what: str) -> NoReturn:
        got = "the end" if self.next.kind == "end" else repr(self.next.text)
        self.fail(f"expected {what}, got {got}", self.next.at, OPERATORS)

    def fail(self, reason: str, at: int, advice: str = "") -> NoReturn:
        line = re.sub(r"\s", " ", self.text)
        parts = [f"cannot read the plan: {reason}", f"    {line}", f"    {' ' * at}^"]
        raise PlanError("\n".join([*parts, advice] if advice else parts))
