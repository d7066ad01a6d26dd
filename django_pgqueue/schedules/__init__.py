"""
Schedules: tasks that are enqueued by themselves, as time passes.

    declare.py      @cron and @every: what code declares
    definition.py   what a schedule may say; what is refused
    timetables.py   when a schedule's row is due, and what it is doing
    sync.py         what code declares becomes rows
    issue.py        a tick becomes a job, in one transaction
    operate.py      what people do with schedules

What code declares is kept by name until sync() writes it into the database, when a
deploy migrates and when a worker starts. From then on the row is what holds.
"""
