"""
Redaction: values whose names say that nobody should read them, replaced.

For people's eyes: the admin, the commands, and what Spark reads. What is stored stays
as it is. This package imports nothing of Django, nor settings: patterns come in as
plain values, so that Spark executors run the same code.

    names.py        which names are secret, and which values are by how they look
    values.py       JSON as Python values, or as text
    text.py         messages and tracebacks
    fingerprint.py  what errors of the same kind have in common
"""
