"""The page in headless Chromium: it loads, its switches switch, its slider slides, by mouse and by keyboard."""

import shutil

import pytest
from test_watch import served
from written_runs import write_run

from pcmlp.report.page import compose, report
from pcmlp.report.reading import read_runs

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra test")
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page with everything on it: a map, a run under way, published numbers, many runs, long names."""
    place = tmp_path_factory.mktemp("page")
    write_run(place / "sparse/point-umaze/pcmlp", 6, task="point-umaze", deep=True)
    write_run(place / "sparse/point-umaze/no-bonus", 3, task="point-umaze", bonus=0.0, summary=False)
    for i in range(12):
        write_run(place / f"sparse/somewhere/a-run-with-a-rather-long-name-{i}", 2 + i % 3)
    write_run(place / "dense/half-cheetah/pcmlp", 2, task="half-cheetah", goal=False, state_shape=(3,))
    write_run(place / "sparse/begun/pcmlp", 0, task="begun", summary=False)
    file = place / "page.html"
    file.write_text(compose(read_runs([place]), static=False))  # its pictures would take longer than all tests here
    return file


@pytest.fixture
def opened(browser, written):
    """The page at a width and in a colour scheme, and what went wrong while it was open."""
    contexts, wrong = [], []

    def open_at(width=1280, scheme="light", scripts=True, file=written):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
        )
        page.goto(file.as_uri())
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []


MAZE = '[data-group="sparse/point-umaze"]'


def curves(page, chart="eval_return_mean"):
    return page.locator(f'{MAZE} [data-chart="{chart}"] svg g[data-label]').count()


def test_it_loads_and_draws_every_chart(opened):
    page = opened()
    page.locator(f"{MAZE} .map svg").first.wait_for()
    plots = page.locator(".chart .plot:visible")
    assert plots.count() == plots.filter(has=page.locator("path.mean")).count() > 10
    assert curves(page) == 2
    assert page.locator(f"{MAZE} .chart .band").count() > 0
    assert page.get_by_role("checkbox", name="no-bonus (unfinished)").is_checked()


def test_a_switch_hides_a_curve_by_mouse_and_by_keyboard(opened):
    page = opened()
    switch = page.get_by_role("checkbox", name="no-bonus (unfinished)")
    switch.click()
    assert curves(page) == 1
    assert curves(page, "info_gain") == 1  # one switch for all charts of a task
    switch.press("Space")
    assert curves(page) == 2
    outline = switch.evaluate("e => getComputedStyle(e.closest('label')).outlineStyle")
    assert outline == "solid"  # focus can be seen
    page.locator(f"{MAZE} > fieldset").first.locator("input").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.key") == "sparse/point-umaze/no-bonus"
    box = page.locator('[data-group="sparse/somewhere"]')
    box.get_by_role("button", name="none").click()
    assert box.locator("svg g[data-label]").count() == 0
    box.get_by_role("button", name="all").press("Enter")
    assert box.locator('[data-chart="eval_return_mean"] svg g[data-label]').count() == 12
    seeds = page.locator(f"{MAZE} .seed").count()
    page.locator(f"{MAZE} [data-option=seeds]").click()
    assert page.locator(f"{MAZE} .seed").count() != seeds


def test_what_is_folded_away_is_drawn_when_it_is_opened(opened):
    page = opened()
    run = page.locator('[data-group="sparse/somewhere"] > details').first
    assert run.locator(".map svg").count() == 0
    run.locator("summary").first.press("Enter")
    run.locator(".map svg .now").wait_for()
    assert "--set 'x=<b>'" in run.inner_text()


def test_values_are_read_by_pointer_and_by_arrow_keys(opened):
    page = opened()
    chart = page.locator(f'{MAZE} [data-chart="eval_return_mean"]')
    svg = chart.locator("svg[tabindex]")
    svg.hover()
    assert "environment steps per seed" in chart.locator(".tip").inner_text()
    svg.focus()
    page.keyboard.press("Home")
    first = chart.locator(".tip").inner_text()
    page.keyboard.press("ArrowRight")
    then = chart.locator(".tip").inner_text()
    assert first.startswith("2 environment")
    assert then.startswith("7 environment")
    assert "pcmlp\n0.1" in then
    page.keyboard.press("Escape")
    assert chart.locator(".tip").count() == 0


def test_a_run_that_has_just_begun_can_be_looked_at(opened):
    page = opened()
    box = page.locator('[data-group="sparse/begun"]')
    box.get_by_label("logarithmic steps").check()  # of no step at all
    assert box.locator(".dot").count() == 2  # return and success of the untrained policy
    assert "Under way or cut off" in box.locator(".headline").inner_text()


def test_the_slider_changes_the_map(opened):
    page = opened()
    figure = page.locator(f"{MAZE} .map").first
    slider, said = figure.locator("input[type=range]"), figure.locator("output")
    drawn = figure.locator(".before, .now")
    drawn.first.wait_for()
    assert drawn.count() == 6
    assert said.inner_text().startswith("Policy 6 entered")
    slider.press("ArrowLeft")
    assert drawn.count() == 5
    assert said.inner_text().startswith("Policy 5 entered")
    slider.press("Home")
    assert said.inner_text().startswith("Policy 1 entered")
    before = figure.locator(".now").get_attribute("d")
    figure.locator("select").select_option(index=1)
    assert figure.locator(".now").get_attribute("d") != before  # the other seed


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_nothing_beside_the_screen(opened, scheme):
    page = opened(390, scheme)
    page.locator(f"{MAZE} .map svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (red < 50) == (scheme == "dark")


def test_without_scripts_there_are_tables_and_pictures(opened, tmp_path):
    run = write_run(tmp_path / "run", 1, task="point-umaze")
    page = opened(scripts=False, file=report([run]))
    for picture in ("learning curves", "where run has been"):
        assert page.get_by_role("img", name=picture).evaluate("e => e.naturalWidth") > 300
    assert page.get_by_role("table", name="Runs of point-umaze").is_visible()
    assert not page.locator(".switches, .charts, .map").locator("visible=true").count()


def test_a_watched_page_goes_on_and_keeps_what_was_set(browser, tmp_path, monkeypatch):
    run = write_run(tmp_path / "one", 2, task="point-umaze", summary=False)
    write_run(tmp_path / "two", 2, task="point-umaze", summary=False)
    with served(tmp_path) as server:
        page, blocked = browser.new_page(), []
        page.on("console", lambda message: blocked.append(message.text) if "Content Security" in message.text else None)
        page.goto(server.address)
        page.get_by_role("checkbox", name="one (unfinished)").uncheck()
        page.get_by_text("live;").wait_for()
        with (run / "metrics.csv").open("a") as file:
            for seed in (0, 4):
                file.write(f"3,{seed},4321,0.2,0,1,0.5,1,,3\n")
        page.get_by_role("cell", name="4,321").wait_for(timeout=20_000)
        assert not page.get_by_role("checkbox", name="one (unfinished)").is_checked()
        assert page.locator('[data-chart="eval_return_mean"] g[data-label]').count() == 1
        monkeypatch.setattr(server.watched, "version", lambda: 1 / 0)
        page.get_by_text("pcmlp watch cannot make the page at the moment; this is the last page it sent").wait_for()
        assert page.get_by_role("cell", name="4,321").is_visible()
        page.close()
        assert blocked == []


def test_what_is_not_the_page_s_own_does_not_run(browser, written, tmp_path):
    """Even if a text of a run's files became markup."""
    strange = (
        "<style>body { color: red; }</style><p style='color: red'></p><img src='data:,' onerror='document.title = 1'>"
    )
    file = tmp_path / "page.html"
    file.write_text(written.read_text().replace("<h1>", f"{strange}<script>document.title = 2</script><h1>", 1))
    page, blocked = browser.new_page(), []
    page.on("console", lambda message: blocked.append(message.text))
    page.goto(file.as_uri())
    page.locator(f"{MAZE} .map svg").first.wait_for()  # our own script runs
    assert "runs of" in page.title()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    assert page.evaluate("getComputedStyle(document.querySelector('main p')).color") != "rgb(255, 0, 0)"
    assert len([text for text in blocked if "Content Security Policy" in text]) == 4
    page.close()
