"""Compiled programs with options of their own."""

import equinox as eqx
import jax
import jax.numpy as jnp

from pcmlp import programs
from pcmlp.programs import brief_program


def test_a_program_inside_another_takes_no_options(monkeypatch):
    """Configurations with code of the user, and stored policies, ask for shapes only."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # the tests set flags that leave no options
    double = brief_program(lambda x: 2 * x)
    assert eqx.filter_eval_shape(lambda: double(jnp.ones(3))).shape == (3,)
    assert float(eqx.filter_jit(lambda x: double(x) + 1)(jnp.ones(()))) == 3.0


def test_an_option_that_this_version_of_xla_does_not_have_is_left_out(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert programs._options("cpu", brief=True)["xla_backend_optimization_level"] == 0
    monkeypatch.setitem(programs._OPTIONS["cpu"], "xla_option_of_another_version", (1, 1))
    assert "xla_option_of_another_version" not in programs._options("cpu", brief=True)
    assert programs.program(lambda x: x + 1)(1) == 2


def test_options_are_those_of_the_device_that_computes(monkeypatch):
    """An agent's `device` may be another than JAX's own choice."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    asked = []
    monkeypatch.setattr(programs, "_options", lambda platform, brief: asked.append(platform) or {})
    double = programs.program(lambda x: 2 * x)
    double(jnp.ones(()))
    with jax.default_device(jax.devices("cpu")[0]):
        double(jnp.ones(()))
        double(jnp.ones(()))
    assert asked == ["gpu", "cpu"]


def test_options_in_the_users_flags_are_left_to_the_user(monkeypatch):
    monkeypatch.setattr(programs, "_is_known", lambda option, value: True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=elsewhere")
    assert "xla_gpu_command_buffer_scheduling_mode" in programs._options("gpu", brief=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE")
    assert programs._options("gpu", brief=False) == {}
    assert "xla_backend_optimization_level" in programs._options("cpu", brief=False)
