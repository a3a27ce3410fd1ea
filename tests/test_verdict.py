"""The verdicts on the paper's claims: each rule on both sides, what is missing, and the pages that have them."""

import csv
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from written_runs import Page, write_run

from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.experiments import pages, paper, rules, verdict
from pcmlp.experiments.catalogue import DENSE_TASKS
from pcmlp.experiments.claims import CLAIMS
from pcmlp.experiments.paper import EXPERIMENTS
from pcmlp.experiments.paper_figures import FIGURES, about_figure
from pcmlp.experiments.theory_tables import THEORY_TABLES
from pcmlp.experiments.verdict import Claim, Finding, Kept, Reading, judge, write_verdicts
from pcmlp.published import BUDGET, PAPER, dense_table
from pcmlp.report.page import report
from pcmlp.report.reading import Run
from pcmlp.report.verdict import FILE, Verdict, read_verdicts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SEEDS = (0, 1, 2, 3)


def run_of(task="somewhere", **columns):
    """A finished run; a column has a row for each iteration, with one number for all seeds or one for each."""
    given = {
        name: np.array([np.broadcast_to(row, len(SEEDS)) for row in rows], float) for name, rows in columns.items()
    }
    length = len(next(iter(given.values()), (0, 1)))
    count = np.tile(np.arange(length, dtype=float)[:, None], (1, len(SEEDS)))
    metrics = {"iteration": count, "env_steps": 100 * count, "eval_return_mean": count, **given}
    config = {"task": {"name": task, "horizon": 5}}
    return Run(Path(task), task, "pcmlp", "finished", config, {}, SEEDS, metrics, np.ones(length, bool))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Kept results, of which the runs and tables are what a test puts into the dictionary."""
    known = {}
    monkeypatch.setattr(Kept, "has", lambda self, place: place in known)
    monkeypatch.setattr(Kept, "run", lambda self, place: known[place])
    monkeypatch.setattr(Kept, "table", lambda self, place: known[place])
    return Kept(tmp_path, {}), known


def follows(kept, rule, **results):
    """Whether a rule is met by these results."""
    known, places = kept[1], tuple(f"e/{name.replace('__', '/')}" for name in results)
    known.update(zip(places, results.values(), strict=True))
    found = rule(kept[0], places)
    assert found.figures
    return found.holds


# -- rules -------------------------------------------------------------------------------------------------------------


def test_solving_is_by_every_seed_and_early(kept):
    early, late = run_of(eval_success=[0, 0, 1, 0]), run_of(eval_success=[0] * 6 + [1])
    one = run_of(eval_success=[0, 0, [1, 0, 0, 0]])
    never = run_of(eval_success=[0, 0.9])
    assert follows(kept, rules.solves_early, a=early)
    assert not follows(kept, rules.solves_early, a=early, b=late)
    assert not follows(kept, rules.solves_early, a=one)
    assert follows(kept, rules.solves, a=early, b=late)
    assert not follows(kept, rules.solves, a=early, b=one)
    assert follows(kept, rules.never_solves, a=never)
    assert not follows(kept, rules.never_solves, a=never, b=one)
    assert rules.first_success(one).tolist() == [2, np.inf, np.inf, np.inf]


def test_a_bonus_vanishes_if_it_falls_far_and_early(kept):
    nan = np.nan
    assert follows(kept, rules.bonus_vanishes, a=run_of(bonus_mean=[nan, 2, 1, 0.1, 0.1]))
    assert not follows(kept, rules.bonus_vanishes, a=run_of(bonus_mean=[nan, 2, 1, 0.3, 0.3]))
    assert not follows(kept, rules.bonus_vanishes, a=run_of(bonus_mean=[nan, 2, 1, 1, 1, 1, 1, 0.1]))


def test_a_difference_counts_only_if_it_is_sure(kept):
    good, bad = run_of(eval_success=[0, 1]), run_of(eval_success=[0, 0])
    either = run_of(eval_success=[0, [1, 0, 1, 0]])
    assert follows(kept, rules.succeeds_more, a=good, b=bad)
    assert not follows(kept, rules.succeeds_more, a=bad, b=good)
    assert not follows(kept, rules.succeeds_more, a=good, b=bad, c=either, d=either)
    high, low = run_of(eval_return_mean=[0, [5, 6, 7, 8]]), run_of(eval_return_mean=[0, [1, 2, 3, 4]])
    wide = run_of(eval_return_mean=[0, [-20, 2, 3, 20]])
    assert follows(kept, rules.returns_more, a=high, b=low)
    assert not follows(kept, rules.returns_more, a=high, b=wide)


def test_a_seed_without_a_number_decides_nothing(kept):
    broken = run_of(eval_return_mean=[0, [np.nan, 1, 1, 1]])
    assert not follows(kept, rules.returns_more, a=broken, b=run_of(eval_return_mean=[0, -9]))


def test_steadiness_counts_from_the_first_success_on(kept):
    steady, shaky = run_of(eval_success=[0, 0, 1, 1, 1]), run_of(eval_success=[0, 1, 0, 1, 0])
    assert follows(kept, rules.is_steadier, a=steady, b=shaky)
    assert not follows(kept, rules.is_steadier, a=steady, b=steady)
    assert not follows(kept, rules.is_steadier, a=run_of(eval_success=[0, 0]), b=shaky)  # it never began


def test_hand_egg_is_learned_above_chance(kept):
    assert follows(kept, rules.is_learned, a=run_of(eval_success=[0, [0.1, 0.2, 0.3, 0.2]]))
    assert not follows(kept, rules.is_learned, a=run_of(eval_success=[0, [0.0, 0.02, 0.3, 0.0]]))


def test_a_return_is_compared_with_the_paper_s(kept):
    quoted = dense_table()["half-cheetah"][PAPER]

    def ending(mean):
        return run_of("half-cheetah", eval_return_mean=[0, mean + np.array([-1.0, 1.0, -1.0, 1.0])])

    assert follows(kept, rules.reaches_published, a=ending(quoted.mean + 10 * quoted.std))
    assert follows(kept, rules.reaches_published, a=ending(quoted.mean - quoted.std - 1))
    assert not follows(kept, rules.reaches_published, a=ending(quoted.mean - quoted.std - 3))


def test_ranks_and_best_tasks_are_among_the_benchmark_s(kept):
    best = {f"t{i}": run_of(task, eval_return_mean=[0, 1e6]) for i, task in enumerate(DENSE_TASKS)}
    worst = {f"t{i}": run_of(task, eval_return_mean=[0, -1e6]) for i, task in enumerate(DENSE_TASKS)}
    half = best | dict(list(worst.items())[: len(worst) // 2])
    for rule in (rules.ranks_first, rules.is_best_in_half):
        assert follows(kept, rule, **best)
        assert not follows(kept, rule, **worst)
    assert follows(kept, rules.is_best_in_half, **half)


def test_coverage_is_quick_or_small(kept):
    quick, slow = run_of(coverage=[0, 0.6, 0.96, 1, 1]), run_of(coverage=[0, 0.3, 0.6, 0.96, 1])
    assert follows(kept, rules.covers_quickly, a=quick)
    assert not follows(kept, rules.covers_quickly, a=slow)
    assert follows(kept, rules.stays_near_the_start, a=run_of(coverage=[0, 0.3]))
    assert not follows(kept, rules.stays_near_the_start, a=slow)


def test_speed_is_compared_per_step(kept, monkeypatch):
    runs = {name: run_of(name, eval_success=[0, 0]) for name in ("ours", "fast", "slow")}
    monkeypatch.setattr(
        rules, "last_iteration", lambda path, seeds: {"ours": (2, 1), "fast": (1, 1)}.get(path.name, (4, 2))
    )
    runs = {name: dataclasses.replace(run, algo=name) for name, run in runs.items()}
    assert follows(kept, rules.is_as_fast, ours=runs["ours"], slow=runs["slow"])
    assert not follows(kept, rules.is_as_fast, ours=runs["ours"], slow=runs["slow"], fast=runs["fast"])


def forgetting_rows(latest):
    """The errors of four seeds after two iterations, of which the first would decide otherwise."""
    ends = [("cover", 2, 1.0 + 0.1 * seed) for seed in SEEDS] + [("latest", 2, x) for x in latest]
    rows = [("cover", 1, ""), ("latest", 1, ""), *ends]
    names = ("fitted_to", "iteration", "error_earlier")
    continued = [dict(zip(names, map(str, row), strict=True)) | {"begins": "continued"} for row in rows]
    return [*continued, {"fitted_to": "latest", "iteration": "2", "error_earlier": "0.001", "begins": "fresh"}]


def test_forgetting_is_of_the_last_iteration_of_continued_fits(kept):
    run = run_of()
    worse, same = forgetting_rows([3, 4, 5, 6]), forgetting_rows([0.9, 1.1, 1.3, 1.2])
    assert follows(kept, rules.forgets_without_cover, errors=worse, run=run)
    assert not follows(kept, rules.forgets_without_cover, errors=worse, run=run, other=same, second=run)


def test_growth_is_polynomial_if_its_slope_is_small(kept):
    def lock(horizon, steps):
        run = run_of(eval_success=[0, 1], env_steps=[0, steps])
        run.config["task"]["horizon"] = horizon
        return run

    assert follows(kept, rules.grows_polynomially, a=lock(5, 25), b=lock(10, 100), c=lock(20, 400))
    assert not follows(kept, rules.grows_polynomially, a=lock(5, 5**5), b=lock(10, 5**10))
    unopened = run_of(eval_success=[0, [0, 1, 1, 1]])
    assert not follows(kept, rules.grows_polynomially, a=lock(5, 25), b=unopened)


def test_tables_of_optima_and_bounds_are_read(kept):
    table = [{"algorithm": "random", "within_0.05": "0 of 10"}, {"algorithm": "ours", "within_0.05": "10 of 10"}]
    assert follows(kept, rules.is_near_optimal, best=table, task__ours=run_of())
    assert not follows(kept, rules.is_near_optimal, best=table, task__random=run_of())
    assert follows(kept, rules.stays_under_bound, a=[{"share_under_bound": "1.0"}, {"share_under_bound": "0.9"}])
    assert not follows(kept, rules.stays_under_bound, a=[{"share_under_bound": "1.0"}, {"share_under_bound": "0.8"}])


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper_s", "ours", "said"),
    [
        (True, False, "holds"),
        (True, None, "holds"),
        (False, True, "holds with another setting: ours"),
        (False, False, "does not hold"),
        (False, None, "does not hold"),
        (None, True, "not tested"),
        (None, None, "not tested"),
    ],
)
def test_the_verdict_follows_from_what_each_reading_found(kept, paper_s, ours, said):
    """None: its result is missing."""
    found = {"exp/task/paper": paper_s, "other/task/ours": ours}
    kept[1].update({place: holds for place, holds in found.items() if holds is not None})

    def rule(results, needs):
        return Finding(results.run(needs[0]), f"{needs[0]} was read")

    readings = tuple(Reading(place.split("/")[-1], (place,), rule) for place in found)
    judged = judge(Claim("it works", "section 7", "it does", readings), kept[0])
    assert judged.verdict == said
    assert judged.command == "pcmlp paper exp other"
    for place, holds in found.items():
        assert (f"missing {place}" if holds is None else f"{place} was read") in judged.figures
    there = [f"{place}/summary.json" for place, holds in found.items() if holds is not None]
    assert judged.file == (there[0] if there else "")


def test_a_part_of_the_results_is_not_enough(kept):
    kept[1]["exp/task/a"] = run_of()
    reading = Reading(
        "paper", ("exp/task/a", "exp/task/b", "exp/task/b", "exp/task/c/errors.csv", "exp/task/c"), rules.solves
    )
    judged = judge(Claim("it works", "section 7", "it does", (reading,)), kept[0])
    assert (judged.verdict, judged.figures) == ("not tested", "paper: missing exp/task/b, task/c")


def test_a_claim_that_nothing_can_test_says_why(kept):
    judged = judge(Claim("it is fast", "section 1", "none", why_not="no clock"), kept[0])
    assert (judged.verdict, judged.figures, judged.command, judged.file) == ("not tested", "no clock", "", "")


def test_without_any_result_nothing_is_tested_and_nothing_fails(tmp_path):
    verdicts = write_verdicts(CLAIMS, Kept.of(tmp_path, EXPERIMENTS.values()))
    assert {made.verdict for made in verdicts} == {verdict.UNTESTED}
    assert [made.claim for made in read_verdicts(tmp_path)] == [claim.text for claim in CLAIMS]


def test_every_result_that_a_claim_needs_is_made_by_an_experiment():
    kept = Kept.of(RESULTS, EXPERIMENTS.values())
    needed = {place for claim in CLAIMS for reading in claim.readings for place in reading.needs}
    drawn = {place for figure in FIGURES for panel in figure.panels for place in panel.lines.values()}
    assert not {place for place in needed | drawn if not place.endswith(".csv")} - set(kept.jobs)
    assert {place.split("/")[0] for place in needed} <= set(EXPERIMENTS)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


def test_a_result_of_other_settings_is_missing(tmp_path):
    """As of a run with other seeds: it must not decide."""
    kept = Kept.of(RESULTS, EXPERIMENTS.values())
    place = "as_printed/mountain-car/pcmlp"
    assert kept.has(place)
    other = Kept(RESULTS, {place: kept.jobs["as_printed/acrobot/pcmlp"]})
    assert not other.has(place)
    assert not other.has("as_printed/acrobot/pcmlp")  # no job
    assert not Kept(tmp_path, kept.jobs).has(place)


def test_every_figure_has_claims():
    verdicts = read_verdicts(RESULTS)
    assert all(about_figure(verdicts, figure.number) for figure in FIGURES)
    assert not about_figure([Verdict("", "table 2", "", "", "", "", "")], 2)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_pages_and_table_are_those_of_the_results():
    """If not: python -m pcmlp.experiments.pages"""
    kept = Kept.of(RESULTS, EXPERIMENTS.values())
    verdicts = [judge(claim, kept) for claim in CLAIMS]
    assert list(read_verdicts(RESULTS)) == verdicts
    for page, text in pages.make_pages(ROOT, kept, verdicts).items():
        assert page.read_text() == text, f"{page} is not of the results; run {pages.COMMAND}"
    for made in verdicts:
        assert made.verdict == verdict.UNTESTED or made.file
        assert not made.file or (RESULTS / made.file).is_file()
    for figure in FIGURES:
        there = any(kept.has(place) for panel in figure.panels for place in panel.lines.values())
        assert (ROOT / f"docs/pictures/figure-{figure.number}.png").exists() == there


def test_the_readme_quotes_the_dense_results():
    rows = list(csv.DictReader((RESULTS / "dense/dense.csv").read_text().splitlines()))
    (row,) = [row for row in rows if (row["task"], row["run"]) == ("half-cheetah", "pcmlp")]
    quoted = dense_table()["half-cheetah"][PAPER]
    ours = f"{float(row['final_return']):,.0f} ± {float(row['std']):,.0f} after {BUDGET:,} steps"
    assert (
        f"half-cheetah gets {ours} on the paper's seeds (the paper: {quoted.mean:,.0f} ± {quoted.std:,.0f})"
        in (ROOT / "README.md").read_text()
    )


def test_pages_are_written_into_a_checkout_only(tmp_path):
    with pytest.raises(ConfigError, match=r"is no checkout of pcmlp .*; run python -m pcmlp.experiments.pages in one"):
        pages.write_pages(tmp_path)
    with pytest.raises(ConfigError, match="from results: verdict .*must be in the page once; put it back"):
        pages.fill("no comment", "verdict", "text")


def test_a_checkout_without_results_gets_its_pages_and_no_pictures(tmp_path):
    for name in ("README.md", "docs/results.md", *THEORY_TABLES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "docs/pictures").mkdir()
    (tmp_path / "docs/pictures/figure-1.png").write_text("an old one")
    assert tmp_path / "docs/figures.md" in pages.write_pages(tmp_path)
    assert not list((tmp_path / "docs/pictures").iterdir())
    assert (tmp_path / "docs/figures.md").read_text().count("Not made: it has no results yet.") == len(FIGURES)
    assert f"{len(CLAIMS)} “not tested”" in (tmp_path / "README.md").read_text()
    assert "| mountain-car | **not run yet** | not run yet |" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "results" / FILE).exists()


def test_figures_are_drawn_with_the_runs_that_are_there(kept, tmp_path):
    one = run_of("mountain-car", eval_return_mean=[0, 1, 2], eval_success=[0, 1, 1], bonus_mean=[np.nan, 2, 1])
    _, sparse, _, ablation, vanishing = FIGURES
    kept[1].update(dict.fromkeys(list(sparse.panels[0].lines.values())[:2], one))
    heights = {}
    for figure in (sparse, vanishing):
        file = pages.draw_figure(figure, kept[0], tmp_path)
        assert file is not None
        assert file == tmp_path / f"figure-{figure.number}.png"
        heights[figure.number] = file.read_bytes()[20:24]
    kept[1].update(dict.fromkeys(sparse.panels[1].lines.values(), one))
    pages.draw_figure(sparse, kept[0], tmp_path)
    assert (tmp_path / "figure-2.png").read_bytes()[20:24] > heights[2]  # both panels
    assert pages.draw_figure(FIGURES[0], kept[0], tmp_path) is None
    shown = pages.figure_section(ablation, kept[0], ())
    assert "mountain-car: return (c = 5)" in shown
    assert "Without results: `as_printed/mountain-car/no-bonus`" in shown


def write_row(results, **changes):
    """A table with one verdict."""
    row = dict.fromkeys(Verdict._fields, "x") | {"claim": "<i>it works", "verdict": "holds", **changes}
    verdict.write_csv(results / FILE, [row])
    verdict.seal_verdicts(results)


def test_the_page_of_results_begins_with_the_verdicts(tmp_path):
    results = tmp_path / "results"
    write_run(results / "exp/somewhere/a run", 2)
    write_row(results, file="exp/somewhere/a run/summary.json")
    text = report([results]).read_text()
    page = Page(text)
    assert "A verdict on each of the paper's claims" in page.words
    assert "<i>it works" in page.words
    assert "i" not in page.tags
    assert text.index("&lt;i&gt;it works") < text.index("Lines are means over seeds") < text.index("<section")
    assert "exp/somewhere/a%20run/summary.json" in page.links
    elsewhere = Page(report([results], tmp_path / "pages/page.html").read_text())
    assert "../results/exp/somewhere/a%20run/summary.json" in elsewhere.links


@pytest.mark.parametrize("file", ["", "../secret", "javascript:alert(1)", "exp/missing.json", "exp"])
def test_the_page_links_only_to_files_of_the_results(tmp_path, file):
    (tmp_path / "secret").write_text("")
    write_run(tmp_path / "results/exp/somewhere/run", 2)
    write_row(tmp_path / "results", file=file)
    page = Page(report([tmp_path / "results"]).read_text())
    assert not [link for link in page.links if not link.startswith(("data:", "#"))]


def test_an_edited_table_is_not_shown(tmp_path):
    write_run(tmp_path / "results/exp/somewhere/run", 2)
    write_row(tmp_path / "results")
    table = tmp_path / "results" / FILE
    table.write_text(table.read_text().replace("holds", "does not hold"))
    said = []
    page = Page(report([tmp_path / "results"], say=said.append).read_text())
    assert re.search(r"verdict.csv: cannot be read \(edited\); remove it, and pcmlp paper makes it again", said[0])
    assert "A verdict on each" not in page.words
    assert "Left out:" in page.words


@pytest.mark.parametrize(("scale", "written"), [("full", True), ("smoke", False)])
def test_pcmlp_paper_ends_with_the_verdicts(places, monkeypatch, capsys, scale, written):
    _, results, _, _ = places
    monkeypatch.setattr(paper, "EXPERIMENTS", {})
    monkeypatch.setattr(paper, "report", lambda folders, out: out / "report.html")
    assert main(["paper", "all", "--scale", scale, "--results", str(results)]) == 0
    assert (results / FILE).exists() == written
    assert (f"verdict.csv: {len(CLAIMS)} “not tested”" in capsys.readouterr().out) == written
