"""The tables of the experiment `theory` that pages of the docs show: which columns, and their headings."""

from typing import NamedTuple


class Shown(NamedTuple):
    """A table of a page: its file among the results, and its columns with their headings."""

    place: str
    columns: dict[str, str]


_THEORY = {
    "gain": Shown(
        "theory/gain.csv",
        {
            "task": "task",
            "run": "run",
            "horizon": "H",
            "ridge": "λ",
            "policies": "N",
            "dim": "d",
            "gain": "I_N of the run",
            "largest_gain": "of any N policies, at most",
            "bound_spread": "d ln(1 + N/(dλ))",
            "bound": "d ln(1 + N/λ)",
        },
    ),
    "bonus_sum": Shown(
        "theory/bonus_sum.csv",
        {
            "task": "task",
            "run": "run",
            "horizon": "H",
            "bonus_scale": "c",
            "ridge": "λ",
            "sum": "sum",
            "largest_ratio": "largest sum / printed bound",
            "N_above": "above it at N",
            "above": "above it",
            "above_with_largest_gain": "above it with the largest gain",
            "above_dim": "above the bound with d",
            "above_repaired": "above the repaired bound",
            "of": "of",
        },
    ),
    "growth": Shown(
        "theory/growth.csv",
        {
            "factor": "x",
            "task": "task",
            "near_optimal": "near-optimal by",
            "from": "from",
            "to": "to",
            "reached": "reached",
            "degree": "slope",
            "low": "low",
            "high": "high",
            "degree_of_theorem": "theorem",
            "degree_published": "best published",
        },
    ),
    "growth_steps": Shown(
        "theory/growth_steps.csv",
        {
            "factor": "x",
            "x": "value",
            "run": "run",
            "near_optimal": "near-optimal by",
            "epsilon": "ε",
            "env_steps": "env steps",
            "reached": "reached",
            "median_steps": "median",
            "most_steps": "most",
            "steps_of_uniform_play": "uniform play",
        },
    ),
}

_KERNELS = {
    "kernel_learning": Shown(
        "theory/kernel_learning.csv",
        {
            "task": "task",
            "run": "class or control",
            "solved": "solved",
            "median_steps": "median steps to success",
            "final_return": "final return",
            "worst_return": "worst seed",
        },
    ),
    "kernel_classes": Shown(
        "theory/kernel_classes.csv",
        {
            "class": "class",
            "features": "d",
            "F": "F",
            "nearest_error": "nearest member errs by (σ)",
            "held_out_error": "fitted member errs on new states by (σ)",
            "info_gain": "information gain",
            "kernel_info_gain": "of the exact kernel",
            "bonus_error": "relative error of the bonus",
        },
    ),
    "kernel_certificate": Shown(
        "theory/kernel_certificate.csv",
        {
            "task": "task",
            "run": "run",
            "bonus_scale": "c",
            "ridge": "λ",
            "kind": "kind",
            "optimum": "J at least",
            "below_the_gap": "below the gap",
            "of": "of",
            "certificate_first": "certificate, first",
            "gap_first": "gap, first",
            "certificate_last": "certificate, last",
            "gap_last": "gap, last",
        },
    ),
}

_ORACLES = {
    "oracle_samples": Shown(
        "theory/oracle_samples.csv",
        {
            "parameters": "parameters of W",
            "method": "method",
            "near": "seeds that get near",
            "median_steps": "median env steps",
            "most_steps": "most",
            "reference": "planning in the truth",
            "final_return": "final return",
            "promised_first": "promise, first",
            "promised_last": "promise, last",
        },
    ),
    "oracle_search": Shown(
        "theory/oracle_search.csv",
        {
            "parameters": "parameters of W",
            "oracle": "oracle",
            "share_of_1": "one search finds",
            "share_of_4": "best of 4",
            "share_of_16": "best of 16",
            "share_of_a_longer": "a longer one",
            "searches_needed": "searches for 95 %",
            "times_the_ordinary": "seconds / ordinary",
        },
    ),
}

THEORY_TABLES = {  # page -> name between its comments -> table
    "docs/theory.md": _THEORY,
    "docs/framework.md": _KERNELS,
    "docs/rivals/lc3-oracle.md": _ORACLES,
}
