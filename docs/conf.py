"""The configuration of the site, which `make docs` builds into site/ with Sphinx. Every warning is an error.

The pages are plain Markdown that reads as well on a code host. Two things happen when the site is built. Links that
leave docs/ become the path that they name, because the site does not contain such files. The help of every command is
inserted into commands.md, as the program prints it.
"""

import contextlib
import io
import os
import re
import sys
from importlib import metadata
from pathlib import Path

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parent.parent

project = "pcmlp"
author = "The pcmlp authors"
release = version = metadata.version("pcmlp")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
highlight_language = "text"  # formulas and output; a block of code names its language

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "none"  # shapes make a signature unreadable; the source shows them

html_theme = "furo"
html_title = "pcmlp"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def name_links_out(text: str, page: Path) -> str:
    """Return the text with links out of docs/ replaced: `[trees.py](../src/pcmlp/trees.py)` by `src/pcmlp/trees.py`."""

    def name_link(match: re.Match) -> str:
        label, target = match[1], match[2]
        if ":" in target:
            return match[0]
        path = (page.parent / target).resolve()
        if not path.exists() or path.is_relative_to(ROOT / "docs"):  # Sphinx reports a page that does not exist
            return match[0]
        place = path.relative_to(ROOT).as_posix()
        bare = label.strip("`")
        return f"`{place}`" if place.endswith(bare) else f"{label} (`{place}`)"

    return LINK.sub(name_link, text)


def help_of(words: list[str]) -> str:
    """Return what `pcmlp WORDS --help` prints, without its rules."""
    from pcmlp.cli import parse

    os.environ["COLUMNS"] = "96"
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        parse([*words, "--help"])
    lines = [line.rstrip() for line in printed.getvalue().splitlines() if set(line.strip()) != {"-"}]
    return "\n".join(lines).strip()


def commands() -> str:
    """Return a section for each command, with its help."""
    from pcmlp.cli import COMMANDS

    names = [[], *([name] for name in COMMANDS), ["theory", "linear-mdp"], ["theory", "knr"]]
    sections = ((" ".join(["pcmlp", *words]), help_of(words)) for words in names)
    return "\n\n".join(f"## {title}\n\n```text\n{text}\n```" for title, text in sections)


def read_page(app, name: str, content: list[str]) -> None:
    """Change the source of a page before Sphinx reads it."""
    page = Path(app.env.doc2path(name))
    content[0] = name_links_out(content[0], page)
    if name == "commands":
        content[0] = content[0].replace("<!-- the help of every command -->", commands())


def read_docstring(app, what: str, name: str, obj, options, lines: list[str]) -> None:
    """Turn a docstring into reStructuredText. It is plain text in which names in backquotes are code and indented lines
    are shown as they are."""
    converted, literal = [], False
    for line in lines:
        indented = line.startswith("    ") if line.strip() else literal
        if indented != literal:
            converted += ["", "::", ""] if indented else [""]
        converted.append(line if indented else escape(line))
        literal = indented
    lines[:] = converted


def escape(line: str) -> str:
    """Return plain text with names in backquotes as reStructuredText."""
    pieces = re.split(r"`([^`]+)`", line)
    pieces[::2] = [re.sub(r"([\\*|_<>:`])", r"\\\1", plain) for plain in pieces[::2]]
    pieces[1::2] = [f"\\ ``{code}``\\ " for code in pieces[1::2]]
    return "".join(pieces)


def skip_member(app, what: str, name: str, obj, skip: bool, options) -> bool:
    """Skip the fields of a NamedTuple, whose docstring is only their number."""
    return skip or (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")


def setup(app) -> None:
    sys.path.insert(0, str(ROOT / "src"))
    app.add_lexer("layers", TextLexer)  # the block of design.md that tests/test_structure.py reads
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-skip-member", skip_member)
