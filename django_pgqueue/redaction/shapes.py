"""
Shapes: well-known secrets that are told by how they look, whatever they are called.

Each service documents the beginning of its keys for this very purpose. The expression
is one for Python and for RE2, by which Spark looks for rows that may have one.
"""

from __future__ import annotations

import re

KEY_BLOCK = "-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----"

SHAPES = (
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS
    r"\bgh[pousr]_[A-Za-z0-9]{36}",  # GitHub
    r"\bgithub_pat_\w{22}",
    r"\bglpat-[\w-]{20}",  # GitLab
    r"\bxox[abeoprs]-[\w-]{10}",  # Slack
    r"hooks\.slack\.com/services/\w+/\w+/",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16}",  # Stripe
    r"\bsk-(?:ant|proj)-[\w-]{20}",  # Anthropic, OpenAI
    r"\bAIza[\w-]{35}",  # Google
    r"\bSG\.[\w-]{22}\.[\w-]{20}",  # SendGrid
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-[\w-]{50}",
    r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.",  # JSON Web Tokens
)

# All of what begins so; a private key to its end, or that of the text.
SHAPE = re.compile(
    rf"(?:{'|'.join(SHAPES)})[\w.-]*|{KEY_BLOCK}.*?(?:-----END [A-Z ]*-----|\Z)",
    re.DOTALL,
)

# What RE2 looks for in JSON, where \n may stand before it: finds more than SHAPE.
SHAPE_BEGINS = "|".join((*SHAPES, KEY_BLOCK)).replace(r"\b", "")
