"""JAX's settings: the compilation cache, for commands and agents, and synchronous dispatch, for commands. Importing the
library leaves them alone.

With the cache on disk, a program is compiled once per user, not once per run. It is in `$XDG_CACHE_HOME/pcmlp/jax` or
`~/.cache/pcmlp/jax`; set `PCMLP_CACHE` to another folder, or to `off`. A cache that is set in JAX itself is kept.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from pcmlp.errors import ConfigError

_WORTH_KEEPING_S = 0.05  # programs that compile faster are not cached; reading one back takes milliseconds


def prepare(*, tiny: bool = False) -> None:
    """Set JAX up before it is used. `tiny` programs are not optimised: that takes longer than running them."""
    if tiny:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
    use_cache()
    # A simulator waits for each action of a policy; dispatching it to another thread took a third of a step's time,
    # without the physics. Accelerators are not affected.
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def check_device() -> str:
    """Return the kind of device that JAX uses; raise if the one that was asked for is missing."""
    try:
        return jax.devices()[0].platform
    except (RuntimeError, AssertionError) as error:  # JAX has no clear error for missing CUDA
        asked = os.environ.get("JAX_PLATFORMS", "")
        remedy = "unset it to use the available device; a GPU needs pip install 'pcmlp[cuda]'"
        raise ConfigError(f"JAX_PLATFORMS={asked}: JAX finds no such device; {remedy}") from error


def use_cache() -> Path | None:
    """Turn the cache on; return its folder, or None if it cannot be used: a run works without it."""
    folder = cache_folder()
    if cache_in_use() or folder is None or why_not_cached() is not None:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING_S)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    compilation_cache.reset_cache()  # JAX looks for a cache only once, and may have compiled something already
    return folder


def cache_in_use() -> bool:
    """Return whether JAX has a compilation cache, ours or the user's own."""
    return bool(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]


def why_not_cached() -> str | None:
    """Return why the cache cannot be used, and what to do; None if it can be used or is turned off."""
    folder = cache_folder()
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return None
    return f"not cached, because {folder} cannot be written: set PCMLP_CACHE to another, or to off"


@contextlib.contextmanager
def compiling_anew() -> Iterator[None]:
    """Ignore everything that was compiled before, in this process or on disk."""
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.clear_caches()
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None if it is off."""
    named = os.environ.get("PCMLP_CACHE", "")
    if named.lower() == "off":
        return None
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "pcmlp" / "jax"
