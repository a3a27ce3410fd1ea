"""Compiled programs: `eqx.filter_jit` with compiler options that make a newcomer wait less.

On a CPU, compiling takes longer than a first run. XLA's first optimisation level and its older code generator for fused
loops halve that time, and the programs run as fast. On a GPU, a stage is thousands of small kernels, most of which wait
for the one before. There XLA may run kernels side by side that do not need one another, and must not split the sums of
matrix products, because with sizes like 500 it pads the weights first, again at every step (benchmarks/README.md).
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

# kind of device -> option -> its value in a program that is optimised, and in a brief one
_OPTIONS: dict[str, dict[str, tuple[Any, Any]]] = {
    "cpu": {"xla_backend_optimization_level": (1, 0), "xla_cpu_use_fusion_emitters": (False, False)},
    "gpu": {
        "xla_gpu_command_buffer_scheduling_mode": ("CONCURRENT", "CONCURRENT"),
        "xla_gpu_experimental_force_split_k": (1, 1),
    },
}


def program(function: Callable[P, T], *, brief: bool = False, donates: bool = False) -> Callable[P, T]:
    """Return the function, compiled at its first call. A `brief` program is not optimised: that would take longer than
    running it. On a CPU, a program that `donates` overwrites all arguments except the first, which saves a copy. Other
    devices copy fast."""

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
    """Return the options for a kind of device; none if the user gave one of them in XLA_FLAGS."""
    wanted = {name: values[brief] for name, values in _OPTIONS.get(platform, {}).items()}
    if any(name in os.environ.get("XLA_FLAGS", "") for name in wanted):
        return {}
    return {name: value for name, value in wanted.items() if _is_known(name, value)}


@functools.cache
def _is_known(option: str, value: Any) -> bool:
    """Return whether this version of XLA has the option: the code generator cannot be chosen from jax 0.11 on."""
    try:
        jax.jit(lambda: 0, compiler_options={option: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
