"""The docs as a site: `make docs` builds it into site/ with Sphinx, and every warning is an error.

The pages are plain Markdown that reads as well on a code host. Two things are made here when the site is built: links
that leave docs/ become the path they name, since the site has no such file, and the help of every command is put into
commands.md, asked of the program itself.
"""

import contextlib
import io
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent

project = "pcmlp"
author = "The pcmlp authors"
release = version = metadata.version("pcmlp")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
highlight_language = "text"  # formulas and output; what is code says so

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "none"  # shapes make a signature unreadable; the source has them

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
    """`[deep.py](../src/pcmlp/deep.py)` as `src/pcmlp/deep.py`: links to what is in the repository but not in docs/."""

    def named(match: re.Match) -> str:
        said, target = match[1], match[2]
        if ":" in target:
            return match[0]
        path = (page.parent / target).resolve()
        if not path.exists() or path.is_relative_to(ROOT / "docs"):  # Sphinx says so where there is no such page
            return match[0]
        place = path.relative_to(ROOT).as_posix()
        bare = said.strip("`")
        return f"`{place}`" if place.endswith(bare) else f"{said} (`{place}`)"

    return LINK.sub(named, text)


def help_of(words: list[str]) -> str:
    """What `pcmlp WORDS --help` prints, without its rules."""
    from pcmlp.cli import parse

    os.environ["COLUMNS"] = "96"
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        parse([*words, "--help"])
    lines = [line.rstrip() for line in said.getvalue().splitlines() if set(line.strip()) != {"-"}]
    return "\n".join(lines).strip()


def commands() -> str:
    """A section for each command, with its help."""
    from pcmlp.arguments import Command, Theory

    names = [[name] for name in named(Command)]
    settings = [["theory", name] for name in named(Theory.__annotations__["setting"])]
    sections = ((" ".join(["pcmlp", *words]), help_of(words)) for words in [[], *names, *settings])
    return "\n\n".join(f"## {title}\n\n```text\n{said}\n```" for title, said in sections)


def named(union) -> list[str]:
    """The names of subcommands."""
    return [get_args(each)[1].name for each in get_args(union)]


def read_page(app, name: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    content[0] = name_links_out(content[0], page)
    if name == "commands":
        content[0] = content[0].replace("<!-- the help of every command -->", commands())


def read_docstring(app, what: str, name: str, obj, options, lines: list[str]) -> None:
    """Docstrings are plain text: names in backquotes are code, indented lines are shown as they are."""
    made, shown = [], False
    for line in lines:
        indented = line.startswith("    ") if line.strip() else shown
        if indented != shown:
            made += ["", "::", ""] if indented else [""]
        made.append(line if indented else escaped(line))
        shown = indented
    lines[:] = made


def escaped(line: str) -> str:
    """Plain text with names in backquotes, as reStructuredText."""
    pieces = re.split(r"`([^`]+)`", line)
    pieces[::2] = [re.sub(r"([\\*|_<>:`])", r"\\\1", plain) for plain in pieces[::2]]
    pieces[1::2] = [f"\\ ``{code}``\\ " for code in pieces[1::2]]
    return "".join(pieces)


def skip_member(app, what: str, name: str, obj, skip: bool, options) -> bool:
    """Fields of a NamedTuple, of which Python itself says nothing but their number."""
    return skip or (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")


def setup(app) -> None:
    sys.path.insert(0, str(ROOT / "src"))
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-skip-member", skip_member)
