"""pcmlp: model-based reinforcement learning that explores (PC-MLP and Deep PC-MLP, Song & Sun, ICML 2021)."""

from pcmlp import lapack

__version__ = "0.1.0"

lapack.use_one_thread()
