"""The paper's claims, in our words: where each stands, the rule by which it is judged, and the results it needs.

Results are named by EXPERIMENT/TASK/LABEL. The first reading of a claim has the paper's settings where there are
such runs. Many claims have a second one, in which the same rule is applied to runs with our settings. Those runs are
older than `bonus_scale=auto`, so their weight of the bonus is fixed (`fixed`).
"""

from pcmlp.experiments import rules
from pcmlp.experiments.as_printed import ACROBOT, ANT_MAZE, CAR, DENSE, HAND, PRESET, SMALL, WALKER
from pcmlp.experiments.catalogue import MAZE
from pcmlp.experiments.rules import COVERED, FEW, LEARNED, POLYNOMIAL, UNEXPLORED, VANISHED
from pcmlp.experiments.verdict import Claim, Reading, Rule
from pcmlp.published import PAPER, dense_table
from pcmlp.report.words import format_percent

OURS = "our settings with a fixed weight of the bonus"
OWN = "each method's own settings"
SMALL_SPARSE = "section 7.1, figure 2"
BONUS_ABLATION = "section 7.4, figure 4"
SURELY = "the 95 % interval of the difference lies above 0"


def printed(*names: str) -> tuple[str, ...]:
    """Return the places of runs of `as_printed`."""
    return tuple(f"as_printed/{name}" for name in names)


def both(rule: Rule, paper: tuple[str, ...], ours: tuple[str, ...]) -> tuple[Reading, ...]:
    """Return a reading with the paper's settings, and one with ours."""
    return Reading(PRESET, paper, rule), Reading(OURS, ours, rule)


SPARSE = (
    *(
        Claim(
            f"{task} is solved within very few iterations",
            SMALL_SPARSE,
            f"every seed succeeds by iteration {FEW}",
            both(rules.solves_early, printed(f"{task}/pcmlp"), (f"controls/{task}/pcmlp",)),
        )
        for task in SMALL
    ),
    *(
        Claim(
            f"SLBO, MBPO and PETS-GT fail on {task}",
            SMALL_SPARSE,
            "no seed ever succeeds",
            (
                Reading(
                    OWN,
                    tuple(f"sparse/{task}/{algo}" for algo in ("slbo", "mbpo", "pets-gt")),
                    rules.never_solves,
                ),
            ),
        )
        for task in SMALL
    ),
    Claim(
        "hand-egg is learned",
        "section 7.1, figure 1",
        f"the 95 % interval of success at the end lies above {format_percent(LEARNED)}; chance is 1 %",
        both(rules.is_learned, printed(f"{HAND}/pcmlp"), (f"sparse/{HAND}/pcmlp",)),
    ),
    Claim(
        "with as many samples, SLBO and MBPO barely reach the goal of hand-egg",
        "section 7.1, figure 1",
        f"PC-MLP has more success at the end: {SURELY} for both",
        (
            Reading(
                PRESET,
                printed(f"{HAND}/pcmlp", f"{HAND}/slbo", f"{HAND}/pcmlp", f"{HAND}/mbpo"),
                rules.succeeds_more,
            ),
        ),
    ),
)

_TEN = printed(*(f"{task}/pcmlp" for task in DENSE))
_OUR_TEN = tuple(f"dense/{task}/pcmlp" for task in DENSE)
DENSE_TASKS = (
    *(
        Claim(
            f"on {task}, the return is {dense_table()[task][PAPER].mean:g} ± {dense_table()[task][PAPER].std:g}",
            "section 7.2, table 2",
            "our mean ± standard deviation overlaps with the paper's, or lies above it",
            both(rules.reaches_published, printed(f"{task}/pcmlp"), (f"dense/{task}/pcmlp",)),
        )
        for task in DENSE
    ),
    Claim(
        "mean rank 2.4 and median rank 1.5 of 11 over the ten dense tasks, the best of all",
        "section 7.2, table 1",
        "both ranks are better than those of every model-based method of the benchmark",
        both(rules.ranks_first, _TEN, _OUR_TEN),
    ),
    Claim(
        "the best return on 5 of the 10 dense tasks",
        "section 7.2, table 2",
        "our mean is above those of TRPO and of the benchmark's model-based methods on at least half of the tasks",
        both(rules.is_best_in_half, _TEN, _OUR_TEN),
    ),
)

MAZE_CLAIMS = (
    Claim(
        "without a reward for it, the ant's maze is quickly covered",
        "section 7.3, figures 1 and 3",
        f"after half of the steps, {format_percent(COVERED)} of the free cells have been entered",
        both(rules.covers_quickly, printed(f"{ANT_MAZE}/pcmlp"), (f"held_out/{ANT_MAZE}/pcmlp",)),
    ),
    Claim(
        "random play does not explore the ant's maze",
        "section 7.3, figure 3",
        f"at the end, less than {format_percent(UNEXPLORED)} of the free cells have been entered",
        (Reading("random play", (f"held_out/{ANT_MAZE}/random",), rules.stays_near_the_start),),
    ),
    Claim(
        "different policies of the cover explore different regions of the ant's maze",
        "section 7.3, figures 1 and 3",
        "one policy enters far fewer cells than all together",
        why_not="the kept results do not say where each policy went",
    ),
)

ABLATIONS = (
    *(
        Claim(
            f"without a bonus (c = 0), {task} is not solved",
            BONUS_ABLATION if task == CAR else "section 7.1",
            "no seed ever succeeds",
            both(rules.never_solves, printed(f"{task}/no-bonus"), (f"controls/{task}/no-bonus",)),
        )
        for task in SMALL
    ),
    Claim(
        f"on {CAR}, c = 1 is as bad as c = 0",
        BONUS_ABLATION,
        "no seed of either ever succeeds",
        (Reading(PRESET, printed(f"{CAR}/c-1", f"{CAR}/no-bonus"), rules.never_solves),),
    ),
    Claim(
        f"on {CAR}, c = 5 works",
        BONUS_ABLATION,
        "every seed succeeds in some iteration",
        (Reading(PRESET, printed(f"{CAR}/pcmlp"), rules.solves),),
    ),
    Claim(
        f"on {WALKER}, c = 0.1 is better than c = 0",
        BONUS_ABLATION,
        f"the return at the end is higher: {SURELY}",
        (Reading(PRESET, printed(f"{WALKER}/pcmlp", f"{WALKER}/no-bonus"), rules.returns_more),),
    ),
    Claim(
        f"on {WALKER}, c = 1 is too much",
        BONUS_ABLATION,
        f"the return at the end is higher with c = 0.1 than with c = 1: {SURELY}",
        (Reading(PRESET, printed(f"{WALKER}/pcmlp", f"{WALKER}/c-1"), rules.returns_more),),
    ),
    Claim(
        f"the bonus vanishes within the first iterations of {CAR}",
        "section 7.5, figure 5",
        f"the mean bonus of a step is below {format_percent(VANISHED)} of its peak by iteration {FEW}",
        both(rules.bonus_vanishes, printed(f"{CAR}/pcmlp"), (f"sparse/{CAR}/pcmlp",)),
    ),
)

APPENDIX = (
    Claim(
        f"with MPPI as the planner, {CAR} and {ACROBOT} are solved too",
        "appendix C.1",
        "every seed succeeds in some iteration",
        both(
            rules.solves,
            printed(*(f"{task}/pcmlp-mppi" for task in SMALL)),
            tuple(f"controls/{task}/pcmlp-mppi" for task in SMALL),
        ),
    ),
    Claim(
        "TRPO is more stable than MPPI",
        "appendix C.1",
        f"TRPO has success in more of the evaluations from the first success on, on average over both tasks: {SURELY}",
        both(
            rules.is_steadier,
            printed(*(f"{task}/{algo}" for task in SMALL for algo in ("pcmlp", "pcmlp-mppi"))),
            tuple(place for task in SMALL for place in (f"sparse/{task}/pcmlp", f"planners/{task}/pcmlp-mppi")),
        ),
    ),
    Claim(
        "PC-MLP runs as fast as PETS-GT and MBPO",
        "appendix C.2",
        f"an env step takes at most {rules.AS_FAST:g} times as long as with either",
        (
            Reading(
                OWN,
                tuple(f"wall_clock/{CAR}/{algo}" for algo in ("pcmlp", "pets-gt", "mbpo")),
                rules.is_as_fast,
            ),
        ),
    ),
)

_LOCKS = ("horizon-5", "horizon-10", "pcmlp-linear", "horizon-40")
_FORGETTING = (CAR, MAZE, "half-cheetah")
IDEAS = (
    Claim(
        "fitting the model to the policy cover avoids catastrophic forgetting",
        "sections 1 and 4",
        "a model that is fitted to the latest policy alone has a larger error on earlier policies: the 95 % interval "
        "of the ratio lies above 1 on every task",
        (
            Reading(
                PRESET,
                tuple(
                    place
                    for task in _FORGETTING
                    for place in (f"forgetting/{task}/pcmlp/errors.csv", f"forgetting/{task}/pcmlp")
                ),
                rules.forgets_without_cover,
            ),
        ),
    ),
    Claim(
        "it is the policy cover that explores",
        "sections 4 and 7.1",
        f"a bonus of the same size that ignores the cover has less success at the end: {SURELY} on every task",
        both(
            rules.succeeds_more,
            printed(*(f"{task}/{label}" for task in SMALL for label in ("pcmlp", "covariance-off"))),
            tuple(f"controls/{task}/{label}" for task in (*SMALL, MAZE) for label in ("pcmlp", "covariance-off")),
        ),
    ),
    Claim(
        "the number of samples is polynomial",
        "section 5",
        f"every seed opens combination locks of horizon 5 to 40, and ln steps against ln H has a slope of at most "
        f"{POLYNOMIAL:g}; uniform play needs 5^H steps",
        (
            Reading(
                "a smaller bonus and fewer samples than the theorem's",
                tuple(f"combination_lock/combination-lock/{label}" for label in _LOCKS),
                rules.grows_polynomially,
            ),
        ),
    ),
    Claim(
        "a linear MDP is solved up to ε",
        "section 5",
        "every seed is within 0.05 of the optimum",
        (
            Reading(
                "a smaller bonus and fewer samples than the theorem's",
                ("low_rank/best_policies.csv", "low_rank/low-rank/pcmlp-linear"),
                rules.is_near_optimal,
            ),
        ),
    ),
    Claim(
        "a KNR is solved up to ε",
        "section 5",
        "every seed is within 5 % of planning in the true dynamics",
        (
            Reading("the paper's SGD", ("knr/knr-lds.csv", "knr/knr-lds/sgd-longer"), rules.is_near_optimal),
            Reading(
                "an exact fit",
                ("knr/knr-lds.csv", "knr/knr-lds/exact", "knr/knr-poly.csv", "knr/knr-poly/exact"),
                rules.is_near_optimal,
            ),
        ),
    ),
    Claim(
        "the lemma about maximum likelihood",
        "appendix A.1",
        "with δ = 0.1, the error is below the bound in at least 90 % of the runs",
        (Reading("100 to 10,000 samples", ("low_rank/likelihood_error.csv",), rules.stays_under_bound),),
    ),
    Claim(
        "the lemma about SGD",
        "appendix B",
        "with δ = 0.1, the error is below the bound in at least 90 % of the runs",
        (Reading("100 to 4,000,000 samples", ("knr/sgd_lemma.csv",), rules.stays_under_bound),),
    ),
    Claim(
        "a planning oracle is enough; LC3 needs an optimistic one, which cannot be computed efficiently",
        "sections 1 and 5",
        "on carts in 1 to 4 dimensions, every seed of PC-MLP comes within 10 % of planning in the true dynamics; and "
        "with the dimensions, the searches that find 95 % of the best known value become more for the optimistic "
        "oracle, by a larger factor than for the ordinary one. No run can show that nothing better can be computed",
        (
            Reading(
                "one search for both: the cross-entropy method",
                ("theory/oracle_samples.csv", "theory/oracle_search.csv"),
                rules.needs_no_optimism,
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (*SPARSE, *DENSE_TASKS, *MAZE_CLAIMS, *ABLATIONS, *APPENDIX, *IDEAS)
