"""
The web server: Django's threaded one, on a socket that is listening already.

So its port is known before it runs, and nobody else can take it. A site of yours would
run config/wsgi.py under gunicorn or the like.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys

from example_project.demo.project import set_up_django


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a listening socket")
    listener = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    set_up_django()

    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    address = listener.getsockname()
    server = ThreadedWSGIServer(address, WSGIRequestHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    # What binding would have done.
    server.server_name, server.server_port = address
    server.setup_environ()
    server.set_app(StaticFilesHandler(get_wsgi_application()))
    server.serve_forever()


if __name__ == "__main__":
    main()
