"""Shared parts of the commands: exit codes, the setup of JAX's device, and cells of tables."""

import os

FAILED = 1
BAD_INPUT = 2
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later
INTERRUPTED = 130


def prepare_device(*, tiny: bool = False) -> None:
    """Set JAX up for computing: the compilation cache, and a clear error if the device that was asked for is missing.

    `tiny` programs are not optimised: that takes longer than running them.
    """
    from pcmlp.runs.cache import prepare

    prepare(tiny=tiny)
    import jax

    from pcmlp.errors import ConfigError

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX has no clear error for missing CUDA
        asked = os.environ.get("JAX_PLATFORMS", "")
        remedy = "unset it to use the available device; a GPU needs pip install 'pcmlp[cuda]'"
        raise ConfigError(f"JAX_PLATFORMS={asked}: JAX finds no such device; {remedy}") from error


def use_cpu_only() -> None:
    """Keep JAX from using an accelerator, which a run may need."""
    os.environ["JAX_PLATFORMS"] = "cpu"


def cell(value: int | float | None) -> str:
    """Return a number for a table."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
