"""`python -m pcmlp.experiments.pages`: what is written from kept results; it runs nothing.

    results/verdict.csv            the verdict on each of the paper's claims
    docs/results.md, README.md     the same as a table, and as a sentence, each between two comments
    docs/figures.md                the paper's figures beside ours
    docs/pictures/figure-N.png     ours

Run it in a checkout after results have changed. A test compares the pages with the results.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pcmlp.errors import ConfigError
from pcmlp.experiments.claims import CLAIMS
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.experiments.paper_figures import FIGURES, PaperFigure, about_figure, draw_figure
from pcmlp.experiments.verdict import VERDICTS, Kept, count_verdicts, write_verdicts
from pcmlp.report.verdict import Verdict
from pcmlp.report.words import count_of
from pcmlp.runs.durable import write_text

COMMAND = "python -m pcmlp.experiments.pages"
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
    found = count_verdicts(verdicts)
    counts = ", ".join(f"{found[verdict]} “{verdict}”" for verdict in VERDICTS)
    return f"Of {len(verdicts)} claims of the paper: {counts}."


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
    return "\n\n".join([*parts, f"**Do they agree?** {_agreement(about)}", "\n".join(agree)])


def _agreement(about: Sequence[Verdict]) -> str:
    """Return a sentence about the verdicts on the claims of a figure."""
    found = count_verdicts(about)
    counts = ", ".join(f"{found[verdict]} “{verdict}”" for verdict in VERDICTS if found[verdict])
    return f"Of {count_of(len(about), 'claim')} that it is to show: {counts}."


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


def write_pages(root: Path) -> list[Path]:
    """Write everything into a checkout, and return the files of docs."""
    docs = root / "docs"
    if not (docs / "results.md").exists():
        raise ConfigError(f"{root}: is no checkout of pcmlp (no docs/results.md); run {COMMAND} in one")
    kept = Kept.of(root / "results", EXPERIMENTS.values())
    verdicts = write_verdicts(CLAIMS, kept)
    filled = {docs / "results.md": verdict_table(verdicts), root / "README.md": verdict_sentence(verdicts)}
    pages = {file: fill(file.read_text(), "verdict", text) for file, text in filled.items()}
    pages[docs / "figures.md"] = figures_page(kept, verdicts)
    for file, text in pages.items():
        write_text(file, text)
    for figure in FIGURES:
        (docs / "pictures" / f"figure-{figure.number}.png").unlink(missing_ok=True)
        draw_figure(figure, kept, docs / "pictures")
    return list(pages)


if __name__ == "__main__":
    print(*write_pages(Path.cwd()), sep="\n")
