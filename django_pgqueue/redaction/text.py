"""
Text: messages and tracebacks, without the values that nobody should read.

Nothing here raises, and the time that it takes grows with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from django_pgqueue.redaction.names import PLACEHOLDER, Names

# A name and what separates it from its value, in a message or a line of a traceback:
# key=…, 'key': …, \"key\": …, Key: …. Possessive, so that a text of any shape is gone
# through once.
NAMED = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]++)"""
    r"""(?P<quote>\\*["'])?[ \t]{0,8}(?P<sign>=(?!=)|:(?!:))[ \t]{0,8}"""
)
# Classes of exceptions are no names of values: "InvalidTokenError: it has expired".
EXCEPTION = re.compile(
    r"(?:^|\.)(?:Invalid|Missing|Expired)\w*$|(?:Error|Exception|Warning)$"
)

# How a value begins and ends: in quotes, in brackets, or without either.
OPENING = re.compile(r"""[bBfFrRuU]{0,2}(?P<escapes>\\*)(?P<quote>\'\'\'|"{3}|'|")""")
BRACKETS = {"{": "}", "[": "]", "(": ")", "<": ">"}
IN_BRACKETS = re.compile(r"""\\.|["'{}\[\]()<>]""", re.DOTALL)
BARE = re.compile(r"""[^\s,;&)\]}]*""")
SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "token"})

# Looking for the ends of values may take this many times the length of the text; then
# all the rest of it is replaced.
LOOKS_MAX = 2

# The password of a URL, such as a DSN in the message of a driver.
USER_INFO = re.compile(r"(?<=://)([^\s:/@'\"]*+):[^\s/@'\"]++(?=@)")


def redact_text(text: str, patterns: Iterable[str]) -> str:
    """
    Return a message or a traceback with the values of matching names replaced.

    Found are key=value, 'key': 'value' (with any quotes, escaped or not), Key: value
    (up to the end of its line, as in an HTTP header), and the password of a URL.
    """
    names = Names(patterns)
    if not names.patterns:
        return text
    ends = _Ends(text)
    parts: list[str] = []
    done = 0
    for found in NAMED.finditer(text):
        if found.start() >= done and _is_hidden(names, found):
            parts += text[done : found.end()], PLACEHOLDER
            done = ends.of_value(found)
    parts.append(text[done:])
    return USER_INFO.sub(rf"\1:{PLACEHOLDER}", "".join(parts))


def _is_hidden(names: Names, found: re.Match[str]) -> bool:
    if _is_header(found) and EXCEPTION.search(found["name"]):
        return False
    return names.hides(found["name"])


def _is_header(found: re.Match[str]) -> bool:
    return found["quote"] is None and found["sign"] == ":"


class _Ends:
    """Where the values in one text end. In doubt: further on rather than too early."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = len(text) * LOOKS_MAX

    def of_value(self, found: re.Match[str]) -> int:
        """Return the place behind the value whose name was *found*."""
        text, start = self._text, found.end()
        opening = OPENING.match(text, start)
        end: int | None
        if opening is not None:
            end = self._closing_quote(opening)
        elif text[start : start + 1] in BRACKETS:
            end = self._closing_bracket(start)
        elif not _is_header(found):
            return self._bare(start)
        else:
            end = None
        if end is None:
            # Nothing closes it; and a header has no end but that of its line.
            end = self._line(start)
        self._left -= end - start
        return end if self._left > 0 else len(text)

    def _closing_quote(self, opening: re.Match[str]) -> int | None:
        # What closes has as many backslashes as what opens; more belong to the text.
        closing = rf"(?<!\\){re.escape(opening['escapes'])}{opening['quote']}"
        closed = re.compile(closing).search(self._text, opening.end())
        if closed is None:
            # An eighth: a search for one text is quicker than a walk over brackets.
            self._left -= (len(self._text) - opening.end()) // 8
            return None
        return closed.end()

    def _closing_bracket(self, start: int) -> int | None:
        closers: list[str] = []
        quote = ""
        for found in IN_BRACKETS.finditer(self._text, start):
            piece = found[0]
            self._left -= 1
            if self._left <= 0:
                break
            if quote:
                quote = "" if piece == quote else quote
            elif piece in ("'", '"'):
                quote = piece
            elif piece in BRACKETS:
                closers.append(BRACKETS[piece])
            elif piece == closers[-1]:
                closers.pop()
                if not closers:
                    return found.end()
        return None

    def _bare(self, start: int) -> int:
        word = BARE.match(self._text, start)
        assert word is not None  # It matches the empty text too.
        if word[0].lower() in SCHEMES:
            word = BARE.match(self._text, word.end() + 1) or word
        return word.end() - (len(word[0]) - len(word[0].rstrip("'\"")))

    def _line(self, start: int) -> int:
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end
