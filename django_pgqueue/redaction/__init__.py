"""
Redaction: values whose names say that nobody should read them, replaced.

For people's eyes: the admin, the commands, and what Spark reads. What is stored stays
as it is. This package imports nothing of Django, nor settings: patterns come in as
plain values, so that Spark executors run the same code.

    names.py        which names are secret
    shapes.py       which values are, whatever their name
    values.py       JSON as Python values
    json_text.py    JSON as text, which Python need not be able to read
    text.py         messages and tracebacks
    fingerprint.py  what errors of the same kind have in common
"""
