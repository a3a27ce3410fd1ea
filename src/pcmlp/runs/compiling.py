"""The wait for the compiler: how long it will take here, from what earlier runs on this machine measured.

The measurements are in `compile-times.json` beside the compiled programs. A program depends on all settings that are
not its inputs (`program_key`), on the versions of everything, and on the device; a run in which all of these are the
same finds its programs in the cache.
"""

import contextlib
import hashlib
import json
import os
import platform
import statistics
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

import pcmlp
from pcmlp.runs.cache import cache_folder, cache_in_use, why_not_cached
from pcmlp.runs.callbacks import show_time
from pcmlp.runs.config import RunConfig
from pcmlp.runs.summary import CompileClock, device, versions

_FILE = "compile-times.json"
_MOST = 200  # measurements that are kept for each machine
_ROUGH_S = 15.0  # compiling on a core whose `_count_s` is _COUNT_S; used until something was measured
_COUNT_S = 0.0022
_SLOW_S = 10.0  # an iteration that takes longer is announced
_TRACING = 1.2  # seconds of tracing and compiling for each second that JAX reports

_compiled: set[str] = set()  # what this process has compiled


class Compiling(contextlib.AbstractContextManager):
    """A callback that measures the compilation before the first iteration, and keeps the result for estimates."""

    def __init__(self, config: RunConfig, *others: Any):
        """Identify the programs by the configuration and by anything else that they depend on."""
        self._kind = f"{config.algo} {config.task_name}"
        self._key = _fingerprint(config, others)
        self._clock = CompileClock()
        self._began = time.perf_counter()
        self._first: float | None = None  # when the first iteration was over
        self._is_known = False  # whether the time of an iteration is known

    def announce(self) -> str | None:
        """Return a line about the time of compilation; None if this process has compiled the programs already."""
        if self._key in _compiled:
            return None
        times = _read_times()
        alike = [entry for entry in times.values() if entry["kind"] == self._kind]
        known = times.get(self._key, alike[-1] if alike else {})
        each = known.get("iteration_s", 0.0)
        then = f", then about {show_time(each)} for each iteration" if each >= _SLOW_S else ""
        if self._key in times and cache_in_use():
            return f"compiling (cached, about {show_time(known.get('warm_s', known['cold_s'] / 10))}){then}"
        why = why_not_cached()
        kept = ", cached for the next run" if cache_in_use() else f"; {why}" if why else ""
        return f"compiling (about {show_time(known.get('cold_s') or _guess(times))} here{kept}){then}"

    def __enter__(self) -> "Compiling":
        self._clock.__enter__()
        self._began = time.perf_counter()
        return self

    def __call__(self, source: Any, metrics: dict[str, float]) -> None:
        """Note the times after the first two iterations of this process."""
        if int(metrics["iteration"]) < 1 or (self._first is None and self._key in _compiled):
            return
        now = time.perf_counter()
        if self._first is None:
            _compiled.add(self._key)
            self._first = now
            self._keep(min(now - self._began, _TRACING * self._clock.seconds))
        elif not self._is_known:  # the second iteration compiles nothing, so the rest of the first was the wait
            self._is_known = True
            each = now - self._first
            self._keep(max(self._first - self._began - each, 0.0), each)

    def _keep(self, seconds: float, iteration_s: float | None = None) -> None:
        """Store the seconds of compiling."""
        is_warm = self._clock.saved > self._clock.seconds
        entry = {"kind": self._kind, "cold_s": round(seconds + max(self._clock.saved, 0.0), 1)}
        entry |= {"warm_s": round(seconds, 1)} if is_warm else {}
        entry |= {} if iteration_s is None else {"iteration_s": round(iteration_s, 1)}
        _keep_time(self._key, entry)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.__exit__()


def _guess(times: dict[str, dict[str, Any]]) -> float:
    """Return the seconds that compiling takes, measured for other programs or guessed from the speed of a core."""
    if times:
        return statistics.median(entry["cold_s"] for entry in times.values())
    busy = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    return _ROUGH_S * _count_s() / _COUNT_S * max(1.0, busy)


def program_key(config: RunConfig) -> str:
    """Return a text that is the same for runs of the same programs: all settings that are not inputs of a program, and
    the number of seeds. The structure of a part has exactly these settings."""
    parts = jax.tree.structure((config.task, config.algorithm))
    return f"{config.task_name} {config.algo} {config.code} {len(config.seeds)} {config.eval_episodes} {parts}"


def _fingerprint(config: RunConfig, others: Any) -> str:
    """Return a hash of everything that compiled programs depend on."""
    sources = Path(pcmlp.__file__).parent.rglob("*.py")
    changed = max(file.stat().st_mtime_ns for file in sources)
    flags = os.environ.get("XLA_FLAGS", "")
    parts = [program_key(config), versions(), device(), flags, changed, [_identify(other) for other in others]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _identify(other: Any) -> str:
    """Return a string that differs between functions, and between numbers."""
    code = getattr(other, "__code__", None)
    if code is None:
        return repr(other)
    numbers = [each for each in code.co_consts if isinstance(each, int | float | str)]
    return f"{code.co_name} {code.co_code.hex()} {numbers}"


def _times_file() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / _FILE


def _machine() -> str:
    return f"{platform.node()} {device()}"


def _read_all() -> dict[str, dict[str, Any]]:
    file = _times_file()
    try:
        found = json.loads(file.read_text()) if file else {}
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _read_times() -> dict[str, dict[str, Any]]:
    """Return the measurements of this machine, oldest first; those of another shape are dropped."""
    found = _read_all().get(_machine(), {})
    entries = found.items() if isinstance(found, dict) else ()
    return {
        key: entry
        for key, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("cold_s"), float) and "kind" in entry
    }


def _keep_time(key: str, entry: dict[str, Any]) -> None:
    """Add a measurement. An estimate is not worth an error, so a file that cannot be written is left alone."""
    file, everything = _times_file(), _read_all()
    times = {other: old for other, old in _read_times().items() if other != key}
    before = _read_times().get(key, {})
    times[key] = {**before, **entry, "cold_s": max(entry["cold_s"], before.get("cold_s", 0.0))}
    everything[_machine()] = dict(list(times.items())[-_MOST:])
    if file is None or not file.parent.is_dir():
        return
    with contextlib.suppress(OSError):
        new = file.with_name(f"{_FILE}.{os.getpid()}")
        new.write_text(json.dumps(everything, indent=1))
        new.replace(file)


def _count_s() -> float:
    """Return the seconds that this core takes to count to 200,000, as a measure of its speed."""

    def count() -> float:
        began = time.perf_counter()
        for _ in range(200_000):
            pass
        return time.perf_counter() - began

    return min(count() for _ in range(5))  # other processes may interrupt
