"""
Naughty texts: what people, browsers and attackers put into a text field.

Every one is text that PostgreSQL can store, so as a value it must come back as it was.
What it cannot store (NUL, lone surrogates) stands in the table of test_bad_input.
"""

# ruff: noqa: RUF001, SIM905 - Odd characters are the matter.

from __future__ import annotations

import unicodedata

WORDS = """
null NULL None nil undefined void true TRUE false FALSE yes no on off NaN -NaN nan
Infinity -Infinity inf +inf constructor prototype __proto__ hasOwnProperty __class__
__init__ __dict__ self this args kwargs context queue delay default select SELECT user
group table order pg_catalog information_schema public root admin postgres nobody con
aux prn nul com1 lpt1 then length toString valueOf main
""".split()

NUMBERS = """
0 -0 00 007 1 -1 +1 1.0 1. .1 1.10 1e1 1E400 1e-400 1e5000 1,000 1.000,5 1_000 0x1F 0b11
0o17 1/0 -1/-0 2147483648 9223372036854775808 18446744073709551616 4294967296 1e308
99999999999999999999999999999999999999999 0.30000000000000004 1d 1f ½ ² ٣ १२ 五 Ⅷ ①
2026-02-30 0000-00-00 24:00:00 12:60 1970-01-01T00:00:00Z 9999-12-31 -0001-01-01
""".split()

PUNCTUATION = [
    "'",
    "''",
    '"',
    '""',
    "'\"'\"",
    "`",
    "\\",
    "\\\\",
    "\\'",
    '\\"',
    "\\n",
    "\\u0000",
    "\\ud800",
    "\\x00",
    "%",
    "%%",
    "%s",
    "%d",
    "%n%n%n",
    "%(name)s",
    "%1$s",
    "{}",
    "{0}",
    "{{}}",
    "{name.__class__}",
    "${7*7}",
    "#{7*7}",
    "{{7*7}}",
    "{% debug %}",
    "<%= 7*7 %>",
    "$1",
    "$$",
    "$tag$",
    ":name",
    "::text",
    "?",
    "??",
    "@",
    "*",
    ";",
    "--",
    "/*",
    "*/",
    "/* -- */",
    "#",
    "&",
    "&amp;",
    "&#0;",
    "|",
    "||",
    ">",
    "<",
    "<!--",
    "]]>",
    "[]",
    "[[",
    "{",
    "}",
    "()",
    ",",
    ".",
    "..",
    "...",
    "~",
    "^",
    "=",
    "==",
    "!",
    "!cancel",
    "!!",
    "-",
    "_",
    "__",
]

SQL = [
    "'; DROP TABLE pgqueue_job; --",
    '"; DROP TABLE pgqueue_job; --',
    "x' OR '1'='1",
    "x') OR ('1'='1",
    "1; SELECT pg_sleep(10)",
    "1 UNION SELECT usename FROM pg_user",
    "admin'--",
    "E'\\047'",
    "$$; DROP TABLE pgqueue_job; $$",
    "'||pg_sleep(10)||'",
    "' AND 1=CAST(version() AS int)--",
    "\\'; DROP TABLE pgqueue_job; --",
    "%27%20OR%201=1",
    "＇; DROP TABLE pgqueue_job; --",
    "'::regclass",
    "nextval('pgqueue_job_id_seq')",
    "COPY pgqueue_job TO PROGRAM 'id'",
    "'}'::jsonb",
    "'{\"a\": 1}'",
    "U&'\\0041'",
]

MARKUP = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<b>x</b>",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='x'>",
    "<style>*{display:none}</style>",
    "&lt;script&gt;",
    "<![CDATA[x]]>",
    '<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]>',
    "<math><mi xlink:href='x'>",
    "<plaintext>",
    "\u2028alert(1)\u2029",
    "＜script＞",
    "<scr\tipt>",
]

SHELLS = [
    "$(reboot)",
    "`id`",
    "| cat /etc/passwd",
    "; rm -rf /",
    "&& sleep 10",
    "../../../../etc/passwd",
    "..\\..\\windows",
    "/dev/null",
    "C:\\",
    "\\\\host\\share",
    "file:///etc/passwd",
    "~root",
    "-rf",
    "--help",
    "-",
    "a b",
    " a",
    "a ",
    "~/.ssh/id_rsa",
    "() { :; }; echo x",
    "$IFS",
    "%PATH%",
    "<(id)",
    "> /tmp/x",
    "\nid\n",
    "http://127.0.0.1:80/",
    "http://[::1]/",
    "//example.com",
    "a@b@c",
    "=cmd|'/c calc'!A1",
    "@SUM(1+1)",
    "+1+1",
]

DATA = [
    '{"a": 1}',
    "[1, 2",
    '{"a": 1, "a": 2}',
    "a: b\n- c",
    "!!python/object:os.system",
    "a,b;c\td",
    "a\r\nSet-Cookie: x=1",
    "a\rb",
    "a\nb",
    "a\tb",
    "GET / HTTP/1.1\r\n\r\n",
    "From nobody\n.\n",
    "rO0ABQ==",
    "gASVAAAAAAAAAA==",
    "cos\nsystem\n(S'id'\ntR.",
    '{"__pgqueue__": "model"}',
    "__pgqueue__",
    "eyJhbGciOiJub25lIn0.e30.",
    "-----BEGIN PRIVATE KEY-----",
    "(a+)+$",
    ".*",
    "[",
    "(?R)",
    "\\p{L}",
    "^$",
]

LANGUAGES = [
    "Grüße aus Köln, Straße, Fuß",
    "naïve façade, señor, Ærøskøbing",
    "İstanbul ıssız, IĞDIR",
    "Ελληνικά: ΌΣΟΣ, όσος",
    "Съешь ещё этих мягких булок",
    "עברית עם ניקוד: שָׁלוֹם",
    "العربية: مرحبا ١٢٣",
    "فارسی: می‌خواهم",
    "हिन्दी: क्षत्रिय",
    "ไทย: ภาษาไทยไม่มีช่องว่าง",
    "日本語: 葛󠄀城市, 𠮷野家",
    "中文: 你好，世界。",
    "한국어: 안녕하세요",
    "한국어 (분해)",
    "ქართული: გამარჯობა",
    "Հայերեն: բարև",
    "አማርኛ: ሰላም",
    "မြန်မာ: မင်္ဂလာပါ",
    "ភាសាខ្មែរ: សួស្តី",
    "தமிழ்: வணக்கம்",
    "ᚠᚢᚦᚨᚱᚲ",
    "𐎠𐎡𐎢",
    "ｆｕｌｌ　ｗｉｄｔｈ",
    "𝕗𝕒𝕟𝕔𝕪 𝓽𝓮𝔁𝓽",
    "uʍop ǝpısdn",
    "ﬁ ﬂ ﬃ ǆ ŉ",
    "ẞ ß SS ss",
    "K K Å Å Ω Ω",
    "Z̷̡̛a̵͔͑l̸̰̽g̶̙̈́ö̷̮",
    "o" + "\u0301" * 200,
]

EMOJI = [
    "😀",
    "👍🏿",
    "👩\u200d👩\u200d👧\u200d👦",
    "🏳️\u200d🌈",
    "🇩🇪🇯🇵",
    "🇩",
    "1️⃣",
    "❤",
    "❤️",
    "🧑🏽\u200d🚀",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "😀" * 100,
]

# One by one: every control character but NUL, every kind of blank, everything that
# has no width or turns the writing round, and what is no character at all.
CONTROLS = [chr(code) for code in (*range(1, 32), *range(127, 160))]
BLANKS = [chr(c) for c in range(0x3001) if unicodedata.category(chr(c)) == "Zs"]
MARKS = [
    chr(code)
    for code in (
        *(0x00AD, 0x034F, 0x061C, 0x115F, 0x180E, 0x2028, 0x2029, 0x3164, 0xFEFF),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2065),
        *range(0x2066, 0x206A),
        *(0xFE00, 0xFE0F, 0xFFF9, 0xFFFA, 0xFFFB, 0xFFFC, 0xFFFD, 0xFFFE, 0xFFFF),
        *(0xE000, 0xF8FF, 0xFDD0, 0xFDEF, 0x1FFFE, 0x1FFFF, 0xE0001, 0xE007F, 0xE0100),
        *(0xD7FF, 0x10000, 0xF0000, 0x10FFFD, 0x10FFFE, 0x10FFFF),
    )
]
HIDDEN = [
    *(f"a{mark}b" for mark in MARKS[:30]),
    "\u202egnp.exe",
    "\u2067abc\u2069\u202c",
    "\ufeffabc",
    "a\u200bdmin",
    "аdmin",
    "p\u0430ypal.com",
    "xn--pypal-4ve.com",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x08\x08\x08",
    "a\x0bb\x0cc",
]
LONG = [
    "x" * 256,
    "x" * 10_000,
    "ä" * 10_000,
    "𝄞" * 10_000,
    "'" * 1_000,
    "\\" * 1_000,
    '"' * 1_000,
    "\n" * 1_000,
    "[" * 2_000,
    '{"a":' * 500,
    "%s" * 500,
    "a " * 5_000,
]

STRINGS = list(
    dict.fromkeys(
        [
            "",
            " ",
            "  ",
            *WORDS,
            *NUMBERS,
            *PUNCTUATION,
            *SQL,
            *MARKUP,
            *SHELLS,
            *DATA,
            *LANGUAGES,
            *(unicodedata.normalize("NFD", text) for text in LANGUAGES),
            *EMOJI,
            *CONTROLS,
            *BLANKS,
            *MARKS,
            *HIDDEN,
            *LONG,
        ]
    )
)
