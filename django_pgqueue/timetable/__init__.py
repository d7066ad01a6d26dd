"""
Timetable: when a schedule is due, from its expression, its zone and a moment alone.

    expression.py  a cron expression: what is refused, and its times by the clock on
                   the wall
    zones.py       which names of time zones are good
    changes.py     when a zone puts its clocks forward or back
    ticks.py       the next tick of an expression or of an interval
    shifts.py      which ticks a change of the clocks moves or shows twice

It knows neither Django nor the database: whoever asks has the moment.
"""
