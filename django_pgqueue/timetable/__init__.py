"""
Timetable: when a schedule is due, from its expression, its zone and a moment alone.

    expression.py  a cron expression: what is refused, and its times by the clock on
                   the wall
    zones.py       which names of time zones are good
    ticks.py       the next tick of an expression or of an interval, and which ones a
                   change of the clocks moves or shows twice

It knows neither Django nor the database: whoever asks has the moment.
"""
