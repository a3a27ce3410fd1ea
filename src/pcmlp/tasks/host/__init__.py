"""Gymnasium environments as worlds, stepped on the host."""

from pcmlp.tasks.host.acting import to_host
from pcmlp.tasks.host.world import GymnasiumWorld

__all__ = ["GymnasiumWorld", "to_host"]
