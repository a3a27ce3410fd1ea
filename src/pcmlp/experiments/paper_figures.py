"""The paper's figures 1 to 5, drawn from kept results: what each shows in the paper, and which results take its place.

paper: bands are mean ± standard deviation / here: mean and range of the seeds, as in all pictures of the report.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image

from pcmlp.experiments.as_printed import ACROBOT, ANT_MAZE, CAR, HAND, WALKER
from pcmlp.experiments.verdict import Kept
from pcmlp.report.curves import plot_bonus, plot_curves, set_title
from pcmlp.report.reading import Run
from pcmlp.report.verdict import Verdict

RETURN, SUCCESS, COVERAGE, BONUS = "eval_return_mean", "eval_success", "coverage", "bonus_mean"
PRINTED, OURS = "pcmlp with preset=paper", "pcmlp with our settings and a fixed c"


class Panel(NamedTuple):
    """A part of a figure: curves of one task."""

    title: str
    columns: tuple[str, ...]
    lines: Mapping[str, str]  # label -> the place of a run in the results


class PaperFigure(NamedTuple):
    """A figure of the paper."""

    number: int
    title: str
    shows: str  # what the paper's figure shows, and what the paper concludes from it
    panels: tuple[Panel, ...]
    not_drawn: str = ""  # what of it the kept results cannot give


def _learning(task: str) -> Panel:
    """Return a panel of figure 2."""
    lines = {PRINTED: f"as_printed/{task}/pcmlp", OURS: f"sparse/{task}/pcmlp"}
    lines |= {algo: f"sparse/{task}/{algo}" for algo in ("slbo", "mbpo")}
    lines |= {f"{label} with preset=paper": f"as_printed/{task}/{label}" for label in ("no-bonus", "covariance-off")}
    return Panel(f"{task}: return and success", (RETURN, SUCCESS), lines)


def _ablation(task: str, runs: Mapping[str, str]) -> Panel:
    """Return a panel of figure 4: weight of the bonus -> label of the run."""
    lines = {f"c = {weight}": f"as_printed/{task}/{label}" for weight, label in runs.items()}
    return Panel(f"{task}: return", (RETURN,), lines)


FIGURES = (
    PaperFigure(
        1,
        "Exploring with a hand and in a maze",
        "Above, learning curves on HandEgg of PC-MLP, SLBO and MBPO: PC-MLP learns much faster than the two, which "
        "explore at random. Below, a map of the ant's maze, explored without a reward, with the places that policies "
        "10, 20, 30, 40 and 50 of the cover have been to: together they cover it.",
        (
            Panel(
                f"{HAND}: success",
                (SUCCESS,),
                {
                    PRINTED: f"as_printed/{HAND}/pcmlp",
                    OURS: f"sparse/{HAND}/pcmlp",
                    **{algo: f"as_printed/{HAND}/{algo}" for algo in ("slbo", "mbpo")},
                },
            ),
        ),
        "the map of policies: the kept results do not say where each policy went. The coverage curve is figure 3.",
    ),
    PaperFigure(
        2,
        "Sparse rewards",
        "Return and success rate against samples on MountainCar (above) and Acrobot (below), mean ± standard deviation "
        "of four seeds. PC-MLP reaches the best return within very few model updates. The baselines, SLBO and PETS-GT "
        "among them, fail completely; on MountainCar these two overlap from the second iteration on.",
        (_learning(CAR), _learning(ACROBOT)),
        "PETS-GT, which knows the dynamics and learns nothing, so that it has no curve.",
    ),
    PaperFigure(
        3,
        "Exploring the ant's maze without a reward",
        "(a) Coverage of PC-MLP and of random exploration: PC-MLP covers the whole maze quickly, random exploration "
        "fails. (b) to (d) The traces of policies 10, 30 and 50 of the cover, early states yellow and late ones "
        "purple: the policies explore different regions.",
        (
            Panel(
                f"{ANT_MAZE}: coverage",
                (COVERAGE,),
                {
                    PRINTED: f"as_printed/{ANT_MAZE}/pcmlp",
                    OURS: f"held_out/{ANT_MAZE}/pcmlp",
                    **{
                        label: f"held_out/{ANT_MAZE}/{label}"
                        for label in ("no-bonus", "covariance-off", "rnd", "random")
                    },
                },
            ),
        ),
        "the traces of policies: the kept results do not say where each policy went.",
    ),
    PaperFigure(
        4,
        "How large a bonus",
        "Learning curves with several bonus coefficients c, mean ± standard deviation of four seeds. On MountainCar "
        "(above), c = 0 and c = 1 behave identically and do not find the goal, unlike c = 5. On Walker2D (below), "
        "c = 0.1 is better than c = 0, and c = 1 is too much.",
        (
            _ablation(CAR, {"0": "no-bonus", "1": "c-1", "5": "pcmlp"}),
            _ablation(WALKER, {"0": "no-bonus", "0.1": "pcmlp", "1": "c-1"}),
        ),
    ),
    PaperFigure(
        5,
        "The vanishing bonus",
        "The bonus of a step on MountainCar, iteration by iteration, on the seeds of figure 2: it converges to near 0 "
        "within the first iterations.",
        (Panel(f"{CAR}: bonus", (BONUS,), {PRINTED: f"as_printed/{CAR}/pcmlp", OURS: f"sparse/{CAR}/pcmlp"}),),
    ),
)


def draw_figure(figure: PaperFigure, kept: Kept, folder: Path) -> Path | None:
    """Write `figure-N.png`, with the panels that have results, and return its path; None if none has any."""
    drawn = [drawn for panel in figure.panels if (drawn := _draw_panel(panel, kept)) is not None]
    if not drawn:
        return None
    file = folder / f"figure-{figure.number}.png"
    _stack(drawn).save(file, optimize=True)
    return file


def _draw_panel(panel: Panel, kept: Kept) -> Figure | None:
    runs: dict[str, Run] = {label: kept.run(place) for label, place in panel.lines.items() if kept.has(place)}
    if not runs:
        return None
    figure = plot_bonus(runs) if panel.columns == (BONUS,) else plot_curves(runs, panel.columns)
    if figure is not None:
        for text in figure.texts:
            text.set_text("")
        seeds = sorted({len(run.seeds) for run in runs.values()})
        alone = f"{next(iter(runs))}: " if len(runs) == 1 else ""  # a single run has no name in the legend
        set_title(figure, panel.title, f"{alone}mean and range of {' or '.join(map(str, seeds))} seeds")
    return figure


def _stack(figures: Sequence[Figure]) -> Image.Image:
    """Return the pictures of figures, one below the other."""
    pictures: list[Image.Image] = []
    for figure in figures:
        data = io.BytesIO()
        figure.savefig(data, format="png")
        pictures.append(Image.open(data).convert("RGB"))
    whole = Image.new("RGB", (max(each.width for each in pictures), sum(each.height for each in pictures)), "white")
    top = 0
    for each in pictures:
        whole.paste(each, (0, top))
        top += each.height
    return whole


def about_figure(verdicts: Sequence[Verdict], number: int) -> list[Verdict]:
    """Return the verdicts on the claims that a figure of the paper is to show."""
    return [verdict for verdict in verdicts if str(number) in re.findall(r"\d+", verdict.place.partition("figure")[2])]
