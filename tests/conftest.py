"""Every shape in a signature is checked, and JAX may not promote types or ranks on its own."""

import os

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("pcmlp", "beartype.beartype")
os.environ.setdefault("PCMLP_CACHE", "off")  # what a test compiles is nobody's business
