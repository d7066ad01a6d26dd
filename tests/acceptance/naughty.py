"""
Naughty texts: input that people, browsers and attackers put into a text field.

PostgreSQL can store every one of them, so as a value each must come back unchanged.
NUL and lone surrogates, which it cannot store, are refused: see test_bad_input.
"""

# ruff: noqa: RUF001, SIM905 - Odd characters are the point.

from __future__ import annotations

WORDS = """
null None undefined true NaN -Infinity inf __proto__ __class__ __init__ self args kwargs
queue delay default select user table pg_catalog public postgres __pgqueue__ 0 -0 007
1e400 1,000 0x1F 1_000 9223372036854775808 ½ ٣ 五 2026-02-30 24:00:00 ' '' " ` \\ \\\\
\\n \\u0000 \\ud800 % %s %(name)s {} {0} {{7*7}} ${7*7} $1 $$ :name ? * ; -- /* # &amp;
| <!-- ]]> [[ .. != !cancel
""".split()

ATTACKS = [
    "'; DROP TABLE pgqueue_job; --",
    "x') OR ('1'='1",
    "$$; DROP TABLE pgqueue_job; $$",
    "nextval('pgqueue_job_id_seq')",
    "COPY pgqueue_job TO PROGRAM 'id'",
    "'{\"a\": 1}'::jsonb",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "$(reboot)",
    "../../../../etc/passwd",
    "\nid\n",
    "=cmd|'/c calc'!A1",
    "a\r\nSet-Cookie: x=1",
    '{"__pgqueue__": "model"}',
    "cos\nsystem\n(S'id'\ntR.",
    "\x1b]0;title\x07",
]

SCRIPTS = [
    "Grüße aus Köln, Straße",
    "İstanbul ıssız",
    "ΌΣΟΣ, όσος",
    "עברית עם ניקוד: שָׁלוֹם",
    "فارسی: می‌خواهم",
    "日本語: 葛󠄀城市, 𠮷野家",
    "한국어 (분해)",
    "ﬁ ﬂ ẞ ß K K",
    "o" + "\u0301" * 200,
    "👩\u200d👩\u200d👧\u200d👦",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u202egnp.exe",
    "\ufeffabc",
    "a\u200bdmin",
    "аdmin",
    "\u2028\u2029",
    "\ufffe\uffff\U0010ffff",
]

LONG = ["x" * 10_000, "𝄞" * 10_000, "\\" * 1_000, "[" * 2_000, '{"a":' * 500]

# Every control character except NUL.
CONTROLS = [chr(code) for code in (*range(1, 32), *range(127, 160))]

STRINGS = ["", " ", *WORDS, *ATTACKS, *SCRIPTS, *LONG, *CONTROLS]
