"""Every figure and table of the paper, in its order, then the theorems at work and what the paper leaves open.

`pcmlp paper NAME` makes one, `pcmlp paper all` all of them.
"""

from pcmlp.experiments import (
    ablation,
    certificate,
    combination_lock,
    controls,
    dense,
    held_out,
    knr,
    low_rank,
    own_tasks,
    planners,
    sparse,
    vanishing,
    wall_clock,
)

EXPERIMENTS = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        sparse,
        dense,
        held_out,
        ablation,
        vanishing,
        planners,
        wall_clock,
        combination_lock,
        low_rank,
        knr,
        certificate,
        controls,
        own_tasks,
    )
}
