"""The methods by name: the variants of PC-MLP, and its rivals. The first with a preset for a task is its default."""

from pcmlp.algorithms import (
    lc3,
    lc3_oracle,
    mbpo,
    pc_pg,
    pcmlp,
    pcmlp_knr,
    pcmlp_linear,
    pcmlp_mppi,
    pets,
    pets_gt,
    random,
    rnd,
    sac,
    slbo,
    trpo,
)
from pcmlp.algorithms.method import Method

METHODS: dict[str, Method] = {
    "pcmlp": pcmlp.METHOD,
    "pcmlp-mppi": pcmlp_mppi.METHOD,
    "pcmlp-linear": pcmlp_linear.METHOD,
    "pcmlp-knr": pcmlp_knr.METHOD,
    "pets": pets.METHOD,
    "pets-gt": pets_gt.METHOD,
    "mbpo": mbpo.METHOD,
    "slbo": slbo.METHOD,
    "rnd": rnd.METHOD,
    "lc3": lc3.METHOD,
    "lc3-oracle": lc3_oracle.METHOD,
    "random": random.METHOD,
    "trpo": trpo.METHOD,
    "sac": sac.METHOD,
    "pc-pg": pc_pg.METHOD,
}
