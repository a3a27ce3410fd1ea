"""Every figure and table of the paper, in its order: `pcmlp paper NAME` makes one, `pcmlp paper all` all of them."""

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
        combination_lock,
        low_rank,
        knr,
        certificate,
        sparse,
        controls,
        own_tasks,
        dense,
        held_out,
        ablation,
        vanishing,
        planners,
        wall_clock,
    )
}
