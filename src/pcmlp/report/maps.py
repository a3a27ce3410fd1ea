"""The data of the page's maps: where each policy has been, as JSON."""

from typing import Any

import numpy as np

from pcmlp.report.reading import Run
from pcmlp.report.visits import MAP_SEEDS

_GOAL_CELLS = 60  # cells of the goal along each axis


def map_data(run: Run) -> dict[str, Any] | None:
    """Return a map of where each policy has been; None if no episodes were kept, as in committed results.

    Points are a random sample of each policy and seed; the shares are of all points.
    """
    visits = run.visits
    if visits is None:
        return None
    view, policies, marks = visits.view, list(visits.marks), zip(*visits.marks.values(), strict=True)
    kept = [visits.policies.index(n) for n in policies]
    wide, tall = np.subtract(view.high, view.low).tolist() if view.equal else (1.5, 1.0)
    columns, rows = view.cells
    finite = {"shape": float(np.clip(columns / rows, 1, 4)), "dot": max(7, min(40, 700 // max(columns, rows)))}
    together, alone = (shares[kept, :MAP_SEEDS].T.round(4).tolist() for shares in (visits.together, visits.alone))
    return {
        "policies": policies,
        "seeds": run.seeds[:MAP_SEEDS],
        "points": [[places.ravel().tolist() for places in of_seed] for of_seed in marks],
        "together": together,
        "alone": alone,
        "of": view.cells_name,
        "labels": view.labels,
        "low": view.low,
        "high": view.high,
        "shape": wide / tall,
        "dot": 7,
        **(finite | {"whole": True} if view.finite else {}),
        **{name: _row_runs(mask) for name, mask in view.scenery(_GOAL_CELLS).items()},
    }


def _row_runs(mask: np.ndarray) -> dict[str, Any]:
    """Return the cells of a mask as runs within rows: row from below, first column, length."""
    runs = []
    for row, cells in enumerate(mask.astype(int)):
        edges = np.diff(np.concatenate([[0], cells, [0]]))
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        runs += [[row, int(start), int(end - start)] for start, end in zip(starts, ends, strict=True)]
    return {"rows": mask.shape[0], "columns": mask.shape[1], "runs": runs}
