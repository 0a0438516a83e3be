"""A proxy that adds the token to every request, for clients that cannot be given one."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.mcp_server import DEADLINE


class Proxy(ThreadingHTTPServer):
    """Listens as soon as it is made, so that its port is known; `target` and `token` may be set later."""

    daemon_threads = True
    target = ("", 0)
    token = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)


class _Passing(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(*self.server.target, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("authorization", "connection"):
                    connection.putheader(name, value)
            connection.putheader("Authorization", f"Bearer {self.server.token}")
            connection.endheaders(body or None)
            with contextlib.suppress(OSError, http.client.HTTPException), connection.getresponse() as answer:
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                while part := answer.read1():
                    self.wfile.write(part)

    do_GET = do_POST = do_DELETE = do_OPTIONS = _pass_on


@contextlib.contextmanager
def passing_on() -> Iterator[Proxy]:
    """Runs a proxy in a thread of its own."""
    with Proxy() as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
