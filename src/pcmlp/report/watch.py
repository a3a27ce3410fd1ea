"""`pcmlp watch`: the page of a folder while its runs are in progress, served only to this machine.

The page asks for `version` every two seconds and reloads when it has changed; the reader's choices are kept.
It is made only on request, and only runs whose files have changed are read again. A run whose files cannot be read at
the moment is named and left out.
"""

import contextlib
import math
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from pcmlp.errors import ConfigError
from pcmlp.report.inline import content_policy
from pcmlp.report.page import compose
from pcmlp.report.reading import Run, find_runs, load, read_readable_runs

_LOOPBACK = "127.0.0.1"
_HTTP = 80  # the port that browsers leave out of the Host header
_WATCHED = ("*.csv", "config.json", "summary.json", "experiment.json", "*.safetensors")
_CONNECTIONS = 32  # most connections at a time; a browser opens up to six
_PATIENCE_S = 60.0  # longest time to wait for a request, and for a reader to take the answer
_HEADERS = {  # of every answer
    "Content-Security-Policy": f"{content_policy(watched=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_REFUSAL = "\r\n".join(
    [
        "HTTP/1.0 503 Service Unavailable",
        "Content-Type: text/plain; charset=utf-8",
        *(f"{name}: {value}" for name, value in _HEADERS.items()),
        "",
        "too many readers at the moment; try again later\n",
    ]
).encode()

Files = list[tuple[str, int, int]]  # path, time of the last change in ns, size


class WatchedFolder:
    """A folder and its newest page."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self._lock = Lock()
        self._newest = ("", "")  # version and page
        self._runs: dict[Path, tuple[Files, Run]] = {}  # those of the newest page, and the files they were read from

    def version(self) -> str:
        """Return the milliseconds of the last change and a checksum of all changes."""
        files = _find_files(self._folders())
        last = max((changed for _, changed, _ in files), default=0)
        return f"{last // 1_000_000}-{zlib.crc32(repr(files).encode()):08x}"

    def page(self) -> str:
        """Return the page, made again only if a file has changed."""
        with self._lock:  # several readers share one page
            version = self.version()
            if version != self._newest[0]:
                self._newest = (version, self._compose(version))
            return self._newest[1]

    def _folders(self) -> list[Path]:
        """Return the folder itself and those of runs elsewhere that its experiment shows."""
        try:
            return [self.folder, *(run for run in find_runs(self.folder) if self.folder not in run.parents)]
        except ConfigError:
            return [self.folder]

    def _compose(self, version: str) -> str:
        shown: dict[Path, tuple[Files, Run]] = {}

        def load_changed(folder: Path) -> Run:
            files = _find_files([folder])  # before they are read: a later change is found the next time
            before = self._runs.get(folder)
            shown[folder] = before if before and before[0] == files else (files, load(folder))
            return shown[folder][1]

        found = read_readable_runs([self.folder], load_changed)
        self._runs = shown
        runs, notes = found.runs, [*(f"Left out for now: {line}" for line in found.left_out), *found.damaged]
        if not runs:
            notes.insert(0, f"No run in {self.folder.name} has written a row yet; this page updates itself.")
        try:
            return compose(runs, static=False, version=version, notes=notes)
        except ConfigError as error:
            return compose([], static=False, version=version, notes=[str(error)])


def _find_files(folders: Iterable[Path]) -> Files:
    """Return the files in the folders whose changes are shown."""
    files = []
    for path in sorted({path for folder in folders for name in _WATCHED for path in folder.rglob(name)}):
        with contextlib.suppress(FileNotFoundError):  # the file is being replaced
            stat = path.stat()
            files.append((str(path), stat.st_mtime_ns, stat.st_size))
    return files


class Handler(BaseHTTPRequestHandler):
    """The answers to `/` and `/version`."""

    server: "Server"
    error_message_format = "<!DOCTYPE html><title>%(code)d</title><p>%(code)d %(message)s: %(explain)s</p>\n"

    def do_GET(self) -> None:
        """Answer, refusing any other site's name for this machine (DNS rebinding)."""
        port, names = self.server.server_port, (_LOOPBACK, "localhost")
        allowed = (*(f"{name}:{port}" for name in names), *(names if port == _HTTP else ()))
        if self.headers.get("Host") not in allowed:
            return self.send_error(403, "this page is only for this machine")
        watched = self.server.watched
        answers = {"/": ("text/html", watched.page), "/version": ("text/plain", watched.version)}
        if self.path not in answers:
            return self.send_error(404)
        kind, answer = answers[self.path]
        try:
            with self.server.without_deadline(self.connection):
                body = answer().encode()
        except Exception as error:  # the next change of a file may fix the error
            line = " ".join(f"{type(error).__name__}: {error}".split())
            return self.send_error(500, explain=f"the page cannot be made ({line})")
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def end_headers(self) -> None:
        """Add the headers of every answer, errors included."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: there would be a line every two seconds."""


class Server(ThreadingHTTPServer):
    """An HTTP server on the loopback interface, with a limited number of connections that end after some time."""

    daemon_threads = True

    def __init__(self, watched: WatchedFolder, port: int):
        self.watched = watched
        self._deadlines: dict[Any, float] = {}  # by socket
        super().__init__((_LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{_LOOPBACK}:{self.server_port}/"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Accept a connection, or refuse it if there are too many."""
        if len(self._deadlines) < _CONNECTIONS:
            self._deadlines[request] = time.monotonic() + _PATIENCE_S
            return True
        with contextlib.suppress(OSError):
            request.settimeout(0.1)  # no other connection is accepted in the meantime
            with contextlib.suppress(TimeoutError):
                request.recv(2**16)  # a reader would not get the answer if its request were left unread
            request.sendall(_REFUSAL)
        return False

    def service_actions(self) -> None:
        """End the connections whose time is over; called twice a second."""
        for request, deadline in self._deadlines.copy().items():
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):  # it has just ended
                    request.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def without_deadline(self, request: Any) -> Iterator[None]:
        """Let a connection wait while its answer is made, and begin its time again afterwards."""
        self._deadlines[request] = math.inf
        try:
            yield
        finally:
            self._deadlines[request] = time.monotonic() + _PATIENCE_S

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless a reader has only left before the answer was complete."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def start_server(folder: Path, port: int) -> Server:
    """Return a server that is ready to `serve_forever`; port 0 is any free one."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder; give a run folder or a folder of runs")
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port}: there is no such port; give 1 to 65535, or 0 for any free port")
    try:
        return Server(WatchedFolder(folder), port)
    except OSError as error:
        raise ConfigError(f"port={port}: cannot be used ({error.strerror}); give another, or 0 for any") from error


def watch(folder: Path, port: int) -> None:
    """Serve the page of a folder until Ctrl-C."""
    with start_server(folder, port) as server:
        print(f"{server.address} shows {folder} as it changes; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
