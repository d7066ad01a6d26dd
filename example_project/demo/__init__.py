"""
The demonstration: HTTP requests become mails in a mailbox while workers are killed.

    make demo                run it, then stay up until Ctrl+C
    make demo ARGS=--exit    run it and leave

`__main__.py` tells the story from top to bottom; every other file is one part of it.
"""
