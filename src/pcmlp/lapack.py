"""LAPACK on one thread.

JAX on a CPU calls SciPy's OpenBLAS from its own worker threads. With OpenBLAS threading too, a batch of Cholesky
factors and triangular solves can wait for ever on a machine with few cores (seen with jaxlib 0.10.2 on 2 cores). The
matrix products of JAX do not go through OpenBLAS and keep all cores.
"""

import scipy.linalg  # noqa: F401  loads the OpenBLAS that JAX calls
from threadpoolctl import ThreadpoolController


def use_one_thread() -> None:
    libraries = ThreadpoolController().select(internal_api="openblas")
    for library in libraries.lib_controllers:
        if "scipy" in library.filepath:
            library.set_num_threads(1)
