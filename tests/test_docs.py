"""Every command and every piece of Python in README.md and docs/ (`documented.py` has how), the links, the site."""

import subprocess
import sys

import jax
import pytest
from documented import (
    COMMAND,
    PAGES,
    ROOT,
    TESTED,
    blocks,
    check,
    commands_in_text,
    headings,
    links,
    new_folder,
    shrink,
    use_small_settings,
)

from pcmlp import cli


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder, and JAX as it is for a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.syspath_prepend(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_how_it_is_tested(page):
    for block in blocks(page):
        if block.language in TESTED:
            assert block.label, f"{block.place}: no <!-- docs-test: … --> above it (CONTRIBUTING.md)"
        else:
            known = block.language in ("text", "layers") or not block.fenced  # tests/test_structure.py reads the layers
            assert known, f"{block.place}: has no language; give sh, python or text"
            lines = [line for line in block.text.splitlines() if COMMAND.match(line)]
            assert not lines, f"{block.place}: commands outside of sh and console: {lines}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target, heading in links(page):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not heading or path.suffix != ".md" or heading in headings(path), f"{page} links to {target}#{heading}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_known(page, place):
    for words in commands_in_text(page):
        check(words)
    folders = set()
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, block.place, "exec")
        if block.file:
            (place / block.file).write_text(block.text)
        for words, said in block.commands:
            if not said.startswith("pcmlp: "):  # what is shown to be refused runs below
                check(words)
                folder = new_folder(words)
                assert folder is None or folder not in folders, f"{block.place}: {words} is refused; give it an --out"
                folders.add(folder)


def test_the_site_lists_every_page():
    listed = (ROOT / "docs" / "index.rst").read_text()
    names = [page.removeprefix("docs/").removesuffix(".md") for page in PAGES if page.startswith("docs/")]
    assert not [name for name in names if f"<{name}>" not in listed]


def pages_to_run(*labels):
    return [page for page in PAGES if any(block.label in labels for block in blocks(page))]


@pytest.mark.parametrize("page", pages_to_run("run", "small"))
def test_blocks_run(page, place, monkeypatch, capsys):
    run_blocks(page, place, monkeypatch, capsys, ("run", "small"))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_to_run("run, slow", "small, slow"))
def test_long_blocks_run(page, place, monkeypatch, capsys):
    run_blocks(page, place, monkeypatch, capsys, ("run", "small", "run, slow", "small, slow"))


def run_blocks(page, place, monkeypatch, capsys, labels):
    """Those of a page in their order, in one folder: a block may need what one before it has made."""
    for block in blocks(page):
        if block.file:
            (place / block.file).write_text(block.text)
        if block.label not in labels:
            continue
        with monkeypatch.context() as patch:
            if block.label.startswith("small"):
                use_small_settings(patch)
            if block.language == "python":
                exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
            for words, said in block.commands:
                if words[0] == "pcmlp":
                    given = shrink(words[1:]) if block.label.startswith("small") else words[1:]
                    run_command(given, said, block, capsys)


def run_command(words, said, block, capsys):
    capsys.readouterr()
    code = cli.main(words)
    printed = capsys.readouterr()
    refused = said.startswith("pcmlp: ")
    assert code == (2 if refused else 0), (block.place, words, printed.err)
    if refused or block.label.startswith("run"):  # what a small run prints has other numbers in it
        assert " ".join(said.split()) in " ".join((printed.out + printed.err).split()), (block.place, words)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(ROOT / "docs"), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    commands = (tmp_path / "commands.html").read_text()
    assert "pcmlp train [-h]" in commands
    assert "--stop-when-certified" in commands
    for page in tmp_path.rglob("*.html"):
        outside = [part for part in page.read_text().split('"') if part.startswith(("http://", "https://", "//"))]
        assert not [address for address in outside if address.endswith((".js", ".css", ".woff2"))], page
