"""Compiled programs: `eqx.filter_jit` with compiler options that make a newcomer wait less.

On a CPU, compiling takes longer than a first run. XLA's first optimisation level and its older code generator for fused
loops halve that time, and the programs run as fast (benchmarks/README.md). Other devices keep XLA's own options.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

P = ParamSpec("P")
T = TypeVar("T")

_LEVEL = "xla_backend_optimization_level"


def program(function: Callable[P, T], *, brief: bool = False, donates: bool = False) -> Callable[P, T]:
    """Return the function, compiled at its first call. A `brief` program is not optimised: that would take longer than
    running it. On a CPU, a program that `donates` overwrites all arguments except the first, which saves a copy. Other
    devices copy fast, and a run there still evaluates the old learner while the next iteration learns."""

    @functools.cache
    def compiled(platform: str) -> Any:
        donate = "all-except-first" if donates and platform == "cpu" else "none"
        options = _options(platform, brief)
        return eqx.filter_jit(function, donate=donate, compiler_options=options)  # pyright: ignore[reportCallIssue]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # Inside another program, or where only shapes are asked for, everything is a tracer and options are refused.
        if isinstance(jnp.zeros(()), Tracer):
            return function(*args, **kwargs)
        return compiled(find_platform())(*args, **kwargs)

    return call


brief_program = functools.partial(program, brief=True)


def find_platform() -> str:
    """Return the kind of device that computes: an agent may choose another than JAX (`jax.default_device`)."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)


def _options(platform: str, brief: bool) -> dict[str, Any]:
    """Return the options for a kind of device; those that the user gave in XLA_FLAGS stay."""
    if platform != "cpu" or _LEVEL in os.environ.get("XLA_FLAGS", ""):
        return {}
    wanted = {_LEVEL: 0 if brief else 1, "xla_cpu_use_fusion_emitters": False}
    return {name: value for name, value in wanted.items() if _is_known(name, value)}


@functools.cache
def _is_known(option: str, value: int | bool) -> bool:
    """Return whether this version of XLA has the option: the code generator cannot be chosen from jax 0.11 on."""
    try:
        jax.jit(lambda: 0, compiler_options={option: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
