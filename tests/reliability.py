"""The tables of docs/reliability.md, from what the fault suite has shown (`make faults`)."""

import re
from collections import Counter
from pathlib import Path

_BEGIN, _END = "<!-- made by make faults -->", "<!-- end -->"


def write_tables(path, notes, kills):
    """Between the two marks of the page; `notes` are the properties of the tests that passed."""
    faults = Counter(tuple(value) for name, value in notes if name == "fault")
    lines = [value for name, value in notes if name == "bad input"]
    page = Path(path)
    before, rest = page.read_text().split(_BEGIN)
    after = rest.split(_END)[1]
    rows = [f"| {what} | {outcome} | {count} |" for (what, outcome), count in sorted(faults.items())]
    said = [f"| `{_cell(command)}` | {_plain(line)} |" for command, line in sorted(dict(lines).items())]
    text = [
        f"{len(faults)} kinds of fault, {kills} kills; all of these tests passed.",
        "",
        "| what happens | what comes of it | tests |",
        "|---|---|---|",
        *rows,
        "",
        f"{len(said)} bad inputs, each with the line it prints; the exit code is 2 and nothing is written.",
        "",
        "| `pcmlp` … | what it says |",
        "|---|---|",
        *said,
    ]
    page.write_text(before + _BEGIN + "\n\n" + "\n".join(text) + "\n\n" + _END + after)


def _cell(text):
    return text.replace("|", "\\|")


def _plain(text):
    """As it was said: nothing in it is a link, a tag or code."""
    return re.sub(r"([|\[\]<>*_`])", r"\\\1", text)
