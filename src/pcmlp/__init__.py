"""pcmlp: model-based reinforcement learning that explores (PC-MLP and Deep PC-MLP, Song & Sun, ICML 2021)."""

__version__ = "0.1.0"
