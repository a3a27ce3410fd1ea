"""Where each policy of the cover has been, as points of a map with a slider over the policies, as JSON.

States that are vectors are drawn in the plane of `report.coverage`; in a finite MDP a point is a state and an action.
Places are whole numbers from 0 to 1,000 along both axes.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcmlp.report import style
from pcmlp.report.coverage import VIEWS, View, cells, covered, plain_view, visits_by_policy
from pcmlp.report.page.charts import rounded
from pcmlp.report.reading import Run
from pcmlp.runs.episodes import Record

_SEEDS = 4  # with a map
_POLICIES = 200
_POINTS = 30_000  # of all policies and seeds together
_SIDE = 1_000
_GOAL_CELLS = 60  # along each axis of a drawn goal

Json = dict[str, Any]


def map_of(run: Run) -> Json | None:
    """None where no episodes are kept, as in committed results."""
    records = run.records()
    if not records:
        return None
    return _finite(run, records) if records[0].arrays["state"].ndim == 2 else _plane(run, records)


def shares_data(found: Json) -> Json:
    """For a chart: what policies 1 to n have entered together and each alone, mean and range of the seeds shown."""

    def line(name: str) -> Json:
        shares = np.array(found[name])
        bands = {"mean": shares.mean(axis=0), "low": shares.min(axis=0), "high": shares.max(axis=0)}
        return {"x": found["policies"], **{name: rounded(values) for name, values in bands.items()}}

    labels = {"together": "policies 1 to n together", "alone": "policy n alone"}
    return {
        "stretched": False,
        "least": 0,
        "seeds": False,
        "charts": {"shares": {"title": "Entered", "scale": "share", "against": "policy"}},
        "runs": [
            {"label": label, "look": style.look(i), "lines": {"shares": line(name)}}
            for i, (name, label) in enumerate(labels.items())
        ],
    }


def _plane(run: Run, records: Sequence[Record]) -> Json:
    view = VIEWS.get(run.task) or plain_view(records)
    visits = visits_by_policy(records, view)
    together, alone = covered(visits, view)
    low, high = np.array(view.low), np.array(view.high)
    places = [_SIDE * (v.places - low) / (high - low) for v in visits]
    inside = [v.valid & ((p >= 0) & (p <= _SIDE)).all(axis=-1) for v, p in zip(visits, places, strict=True)]
    wide, tall = (high - low).tolist() if view.equal else (1.5, 1.0)
    return {
        **_sampled([v.n for v in visits], run.seeds, places, inside, together, alone),
        "of": cells(view)[1],
        "labels": view.labels,
        "low": view.low,
        "high": view.high,
        "shape": wide / tall,
        "dot": 7,
        **_scenery(view),
    }


def _finite(run: Run, records: Sequence[Record]) -> Json:
    """Every pair once."""
    states = 1 + int(max(max(r.arrays["state"].max(), r.arrays["next_state"].max()) for r in records))
    actions = 1 + int(max(r.arrays["action"].max() for r in records))
    first: dict[int, Record] = {}
    for record in records:
        first.setdefault(record.iteration, record)
    tried = np.zeros((len(first), len(run.seeds), states, actions), bool)
    for i, record in enumerate(first.values()):
        rows, valid = record.arrays, record.arrays["valid"]
        tried[i, np.nonzero(valid)[0], rows["state"][valid], rows["action"][valid]] = True
    grid = np.stack(np.meshgrid(np.arange(states), np.arange(actions), indexing="ij"), axis=-1).reshape(-1, 2)
    places = np.broadcast_to(_SIDE * (grid + 0.5) / np.array([states, actions]), (len(run.seeds), len(grid), 2))
    valid = tried.reshape(len(first), len(run.seeds), -1)
    together, alone = np.logical_or.accumulate(valid, axis=0).mean(axis=2), valid.mean(axis=2)
    return {
        **_sampled(list(first), run.seeds, [places] * len(first), list(valid), together, alone),
        "of": f"{states} states × {actions} actions",
        "labels": ("state", "action"),
        "low": (-0.5, -0.5),
        "high": (states - 0.5, actions - 0.5),
        "shape": float(np.clip(states / actions, 1, 4)),
        "dot": max(7, min(40, 700 // max(states, actions))),
        "whole": True,
    }


def _sampled(
    policies: Sequence[int],
    seeds: Sequence[int],
    places: Sequence[np.ndarray],
    valid: Sequence[np.ndarray],
    together: np.ndarray,
    alone: np.ndarray,
) -> Json:
    """Some points of each policy and seed, drawn at random: the shares are of all of them."""
    kept = np.unique(np.linspace(0, len(policies) - 1, min(len(policies), _POLICIES)).round().astype(int)).tolist()
    shown = seeds[:_SEEDS]
    each = max(20, _POINTS // (len(kept) * len(shown)))
    rng = np.random.default_rng(0)

    def drawn(i: int, seed: int) -> list[int]:
        points = np.unique(places[i][seed][valid[i][seed]].round().astype(int), axis=0)
        return rng.permutation(points)[:each].ravel().tolist()

    return {
        "policies": [int(policies[i]) for i in kept],
        "seeds": shown,
        "points": [[drawn(i, seed) for i in kept] for seed in range(len(shown))],
        "together": together[kept, : len(shown)].T.round(4).tolist(),
        "alone": alone[kept, : len(shown)].T.round(4).tolist(),
    }


def _scenery(view: View) -> Json:
    """Goal and walls as cells of the whole map: columns, and for each row from below the cells that are filled."""
    scenery = {}
    if view.map is not None:
        scenery["wall"] = _filled(~np.asarray(view.map.free))
    if view.goal is not None:
        middle = (np.arange(_GOAL_CELLS, dtype=np.float32) + 0.5) / _GOAL_CELLS
        x, y = (low + (high - low) * middle for low, high in zip(view.low, view.high, strict=True))
        grid = jnp.stack(jnp.meshgrid(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)), axis=-1)
        scenery["goal"] = _filled(np.asarray(jax.vmap(jax.vmap(view.goal))(grid)))
    return scenery


def _filled(mask: np.ndarray) -> Json:
    """Runs of filled cells, as row, first column, length."""
    runs = []
    for row, cells_of_row in enumerate(mask.astype(int)):
        edges = np.diff(np.concatenate([[0], cells_of_row, [0]]))
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        runs += [[row, int(start), int(end - start)] for start, end in zip(starts, ends, strict=True)]
    return {"rows": mask.shape[0], "columns": mask.shape[1], "runs": runs}
