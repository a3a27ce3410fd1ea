"""`pcmlp watch`: the page of a folder while its runs go on, served to this machine alone.

The page asks for `version` every two seconds, and for itself where that has changed; what its reader has set stays. It
is made anew only when somebody asks. A run whose files cannot be read at the moment is named and left out.
"""

import contextlib
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from pcmlp.report.page.compose import compose
from pcmlp.report.reading import Run, load, runs_in
from pcmlp.types import ConfigError

_LOOPBACK = "127.0.0.1"
_HTTP = 80  # the port that no browser names
_WATCHED = (
    "*.csv",
    "config.json",
    "summary.json",
    "experiment.json",
)  # what a page is made of; episodes come with rows


class Watched:
    """The newest page of a folder."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self._lock = Lock()
        self._made = ("", "")  # version and page

    def version(self) -> str:
        """Milliseconds of the last change, and a number for all changes."""
        seen = []
        for path in sorted({path for folder in self._folders() for name in _WATCHED for path in folder.rglob(name)}):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced, and will be there the next time
                stat = path.stat()
                seen.append((str(path), stat.st_mtime_ns, stat.st_size))
        last = max((changed for _, changed, _ in seen), default=0)
        return f"{last // 1_000_000}-{zlib.crc32(repr(seen).encode()):08x}"

    def _folders(self) -> list[Path]:
        """Its own, and those of runs that lie elsewhere."""
        return [self.folder, *(run for run in self._runs()[0] if self.folder not in run.parents)]

    def _runs(self) -> tuple[list[Path], list[str]]:
        """And why some may be missing, a line each."""
        try:
            return runs_in(self.folder), []
        except ConfigError as error:
            return sorted(file.parent for file in self.folder.rglob("metrics.csv")), [f"Left out for now: {error}"]

    def page(self) -> str:
        with self._lock:  # one at a time: several readers are served the same page
            version = self.version()
            if version != self._made[0]:
                self._made = (version, self._compose(version))
            return self._made[1]

    def _compose(self, version: str) -> str:
        runs: list[Run] = []
        paths, notes = self._runs()
        for path in paths:
            try:
                runs.append(load(path))
            except ConfigError as error:
                notes.append(f"Left out for now: {error}")
        waiting = [] if runs else [f"No run in {self.folder.name} has written a row yet; this page goes on by itself."]
        try:
            return compose(runs, static=False, version=version, notes=[*waiting, *notes])
        except ConfigError as error:
            return compose([], static=False, version=version, notes=[str(error)])


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        port = self.server.server_port
        names = (_LOOPBACK, "localhost")
        ours = (*(f"{name}:{port}" for name in names), *(names if port == _HTTP else ()))
        if self.headers.get("Host") not in ours:  # another site's name for us
            return self.send_error(403, "this page is for this machine alone")
        answers = {
            "/": ("text/html", self.server.watched.page),
            "/version": ("text/plain", self.server.watched.version),
        }
        if self.path not in answers:
            return self.send_error(404)
        kind, answer = answers[self.path]
        try:
            body = answer().encode()
        except Exception as error:  # whatever it is, the next change of a file may mend it
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
        """Every two seconds a line would be nobody's news."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, watched: Watched, port: int):
        self.watched = watched
        super().__init__((_LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/"


def serve(folder: Path, port: int) -> Server:
    """Ready to `serve_forever`; port 0 is any that is free."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder; give a run folder or a folder of runs")
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port {port}: there is no such port; give one from 0, any that is free, to 65535")
    try:
        return Server(Watched(folder), port)
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot be used ({error.strerror}); give another, or 0 for any") from error


def watch(folder: Path, port: int) -> None:
    """Until Ctrl-C."""
    with serve(folder, port) as server:
        print(f"{server.address} shows {folder} as it changes; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
