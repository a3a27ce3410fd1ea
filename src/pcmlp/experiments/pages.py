"""The pages and tables that `python -m pcmlp.experiments.pages` writes from kept results. It runs no experiment.

    results/verdict.csv            the verdict on each of the paper's claims
    docs/results.md                the same verdicts, between two comments
    README.md                      the number of claims with each verdict, and the runs where only a goal pays; also
                                   between comments
    docs/theory.md, docs/framework.md, docs/rivals/lc3-oracle.md
                                   tables of the experiment `theory`; also between comments
    docs/figures.md                the paper's figures beside ours
    docs/pictures/figure-N.png     our figures
    docs/pictures/proof-*.png      the pictures of docs/proof.md
    docs/pictures/theory-*.png     the pictures of docs/theory.md, docs/framework.md and docs/rivals/lc3-oracle.md

Run it in a checkout after results have changed. A test compares the pages with the results.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pcmlp.errors import ConfigError
from pcmlp.experiments.catalogue import ACROBOT, CAR, MAZE
from pcmlp.experiments.chain_figures import PICTURES, draw_pictures
from pcmlp.experiments.claims import CLAIMS
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.experiments.paper_figures import FIGURES, PaperFigure, about_figure, draw_figure
from pcmlp.experiments.theory_figures import THEORY_PICTURES
from pcmlp.experiments.theory_tables import THEORY_TABLES
from pcmlp.experiments.verdict import Kept, write_verdicts
from pcmlp.report.verdict import Verdict, count_verdicts
from pcmlp.report.words import count_of, format_number
from pcmlp.runs.durable import write_text

COMMAND = "python -m pcmlp.experiments.pages"
_GOALS = {CAR: CAR, ACROBOT: ACROBOT, MAZE: f"the maze `{MAZE}`"}
_BEGIN, _END = "<!-- from results: {} -->", "<!-- end -->"


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Return the table of docs/results.md."""
    lines = ["| claim | in the paper | verdict | what was found |", "|---|---|---|---|"]
    for verdict in verdicts:
        claim = f"{verdict.claim} (*holds if* {verdict.rule})"
        name, _, setting = verdict.verdict.partition(": ")
        said = f"**{name}**" + (f": {setting}" if setting else "")
        found = verdict.figures + (f" ([results](../results/{verdict.file}))" if verdict.file else "")
        lines.append("| " + " | ".join((claim, verdict.place, said, found)) + " |")
    return "\n".join(lines)


def verdict_sentence(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have each verdict."""
    return f"Of {len(verdicts)} claims of the paper: {count_verdicts(verdicts)}."


def goals_table(kept: Kept) -> str:
    """Return the table of README.md: the method and both controls on the tasks where only a goal pays."""
    lines = [
        "| | Deep PC-MLP | env steps to success, median / most | no bonus | a bonus that ignores the policy cover |",
        "|---|---|---|---|---|",
    ]
    for task, name in _GOALS.items():
        ours, *controls = (f"controls/{task}/{label}" for label in ("pcmlp", "no-bonus", "covariance-off"))
        cells = [
            f"**{solved_cell(kept, ours)}**",
            steps_cell(kept, ours),
            *(solved_cell(kept, run) for run in controls),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def solved_cell(kept: Kept, place: str) -> str:
    """Return how many seeds of a run were solved within its steps, and how many of them stayed solved."""
    if not kept.has(place):
        return "not run yet"
    run = kept.run(place)
    stayed = int(np.isfinite(run.steps_to_sustained_success).sum())
    lost = f", {stayed} stay so" if stayed < run.num_solved else ""
    return f"{run.num_solved} of {len(run.seeds)} in {run.env_steps:,.0f}{lost}"


def steps_cell(kept: Kept, place: str) -> str:
    """Return the median and the most env steps to success."""
    if not kept.has(place):
        return "not run yet"
    steps = kept.run(place).steps_to_success
    most = f"{steps.max():,.0f}" if np.isfinite(steps).all() else "never"
    return f"{np.median(steps):,.0f} / {most}" if np.isfinite(np.median(steps)) else "never"


def csv_table(kept: Kept, place: str, columns: Mapping[str, str]) -> str:
    """Return some columns of a table of the results, with headings."""
    if not kept.has(place):
        return f"Not made: it has no results yet ([{place}](../results))."
    lines = [f"| {' | '.join(columns.values())} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(show_cell(row[name]) for name in columns)} |" for row in kept.table(place)]
    return "\n".join(lines)


def show_cell(text: str) -> str:
    """Return a cell as a page shows it: a number in four digits, a dash if it is empty."""
    try:
        value = float(text)
    except ValueError:
        return text or "–"
    return f"{value:.2e}" if abs(value) >= 1e7 else format_number(value)


def figure_section(figure: PaperFigure, kept: Kept, verdicts: Sequence[Verdict]) -> str:
    """Return the section of docs/figures.md about a figure."""
    parts = [f"## Figure {figure.number}: {figure.title}", f"**The paper.** {figure.shows}"]
    places = {place: kept.has(place) for panel in figure.panels for place in panel.lines.values()}
    if any(places.values()):
        shown = "; ".join(
            f"{panel.title} ({names})"
            for panel in figure.panels
            if (names := ", ".join(label for label, place in panel.lines.items() if places[place]))
        )
        parts.append(f"**Ours.** {shown}.")
        parts.append(f"![figure {figure.number}, drawn from our results](pictures/figure-{figure.number}.png)")
    else:
        parts.append("**Ours.** Not made: it has no results yet.")
    if missing := [f"`{place}`" for place, there in places.items() if not there]:
        parts.append(f"Without results: {', '.join(missing)}.")
    if figure.not_drawn:
        parts.append(f"Not drawn: {figure.not_drawn}")
    about = about_figure(verdicts, figure.number)
    agree = [f"- {verdict.claim}: **{verdict.verdict}**" for verdict in about]
    counts = f"Of {count_of(len(about), 'claim')} about this figure: {count_verdicts(about)}."
    return "\n\n".join([*parts, f"**Do they agree?** {counts}", "\n".join(agree)])


def figures_page(kept: Kept, verdicts: Sequence[Verdict]) -> str:
    """Return docs/figures.md."""
    intro = (
        f"# The paper's figures\n\nThis page is written by `{COMMAND}`, from [results](../results). Lines are means"
        " over seeds, and bands their range; in the paper, bands are one standard deviation. The descriptions of the"
        " paper's figures are ours. [results.md](results.md#the-papers-claims) has the rule and the numbers of each"
        " claim."
    )
    return "\n\n".join([intro, *(figure_section(figure, kept, verdicts) for figure in FIGURES)]) + "\n"


def fill(page: str, name: str, text: str) -> str:
    """Return a page with the text between the two comments of a name."""
    begin = _BEGIN.format(name)
    if page.count(begin) != 1:
        raise ConfigError(f"{begin}: must be in the page once; put it back, with {_END} below it")
    return re.sub(
        f"{re.escape(begin)}.*?{re.escape(_END)}", lambda _: f"{begin}\n{text}\n{_END}", page, flags=re.DOTALL
    )


def theory_pages(root: Path, kept: Kept) -> dict[Path, str]:
    """Return the text of each page that has tables of the experiment `theory`."""
    pages: dict[Path, str] = {}
    for file, tables in THEORY_TABLES.items():
        page = (root / file).read_text()
        for name, (place, columns) in tables.items():
            page = fill(page, name, csv_table(kept, place, columns))
        pages[root / file] = page
    return pages


def make_pages(root: Path, kept: Kept, verdicts: Sequence[Verdict]) -> dict[Path, str]:
    """Return the text of each page that has something from results."""
    results, readme = root / "docs/results.md", root / "README.md"
    start = fill(readme.read_text(), "verdict", verdict_sentence(verdicts))
    return {
        results: fill(results.read_text(), "verdict", verdict_table(verdicts)),
        readme: fill(start, "goals", goals_table(kept)),
        **theory_pages(root, kept),
        root / "docs/figures.md": figures_page(kept, verdicts),
    }


def write_pages(root: Path) -> list[Path]:
    """Write everything into a checkout, and return the pages."""
    docs = root / "docs"
    if not (docs / "results.md").exists():
        raise ConfigError(f"{root}: is no checkout of pcmlp (no docs/results.md); run {COMMAND} in one")
    kept = Kept.of(root / "results", EXPERIMENTS.values())
    verdicts = write_verdicts(CLAIMS, kept)
    pages = make_pages(root, kept, verdicts)
    for file, text in pages.items():
        write_text(file, text)
    for figure in FIGURES:
        (docs / "pictures" / f"figure-{figure.number}.png").unlink(missing_ok=True)
        draw_figure(figure, kept, docs / "pictures")
    draw_pictures([*PICTURES, *THEORY_PICTURES], kept, docs / "pictures")
    return list(pages)


if __name__ == "__main__":
    print(*write_pages(Path.cwd()), sep="\n")
