"""`pcmlp watch`: the page of a folder while its runs are in progress, served only to this machine.

The page asks for `version` every two seconds and reloads when it has changed; the reader's choices are kept.
It is made only on request. A run whose files cannot be read at the moment is named and left out.
"""

import contextlib
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from pcmlp.errors import ConfigError
from pcmlp.report.page import compose
from pcmlp.report.reading import find_runs, read_readable_runs

_LOOPBACK = "127.0.0.1"
_HTTP = 80  # the port that browsers leave out of the Host header
_WATCHED = ("*.csv", "config.json", "summary.json", "experiment.json")  # episodes change only together with rows


class WatchedFolder:
    """A folder and its newest page."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self._lock = Lock()
        self._newest = ("", "")  # version and page

    def version(self) -> str:
        """Return the milliseconds of the last change and a checksum of all changes."""
        files = []
        for path in sorted({path for folder in self._folders() for name in _WATCHED for path in folder.rglob(name)}):
            with contextlib.suppress(FileNotFoundError):  # the file is being replaced
                stat = path.stat()
                files.append((str(path), stat.st_mtime_ns, stat.st_size))
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
        found = read_readable_runs([self.folder])
        runs, notes = found.runs, [*(f"Left out for now: {line}" for line in found.left_out), *found.damaged]
        if not runs:
            notes.insert(0, f"No run in {self.folder.name} has written a row yet; this page updates itself.")
        try:
            return compose(runs, static=False, version=version, notes=notes)
        except ConfigError as error:
            return compose([], static=False, version=version, notes=[str(error)])


class Handler(BaseHTTPRequestHandler):
    """The answers to `/` and `/version`."""

    server: "Server"

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
            body = answer().encode()
        except Exception as error:  # the next change of a file may fix the error
            line = " ".join(f"{type(error).__name__}: {error}".split())
            return self.send_error(500, explain=f"the page cannot be made ({line})")
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: there would be a line every two seconds."""


class Server(ThreadingHTTPServer):
    """An HTTP server on the loopback interface."""

    daemon_threads = True

    def __init__(self, watched: WatchedFolder, port: int):
        self.watched = watched
        super().__init__((_LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{_LOOPBACK}:{self.server_port}/"


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
