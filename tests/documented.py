"""The blocks of README.md, docs/ and other pages: which commands and code they have, and how each is tested.

Above a block of `sh`, `console` or `python` stands a comment that says how (CONTRIBUTING.md explains it to writers):

    <!-- docs-test: run -->             runs as it is written
    <!-- docs-test: small -->           runs with tiny settings, two iterations and two seeds
    <!-- docs-test: small, slow -->     the same among the slow tests; so is `run, slow`
    <!-- docs-test: file -->            is a file for the blocks after it: Python that begins with `# NAME.py`
    <!-- docs-test: read: WHY -->       is not run: commands are parsed and configurations resolved, Python is compiled

Only `pcmlp` and Python run. Of other programs it is checked that what they are given is there. A `console` block has
commands after `$ ` and what they print. A Python block that begins with `# NAME.py` is that file for what follows it.
"""

import dataclasses
import importlib.util
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt

from pcmlp import cli
from pcmlp.commands.runs import Eval, Plan, Train
from pcmlp.commands.tune import Tune
from pcmlp.parts import NAMES, methods_for
from pcmlp.runs import config as configuration
from pcmlp.settings import overlay
from pcmlp.tasks import TASKS

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
TESTED = ("sh", "console", "python")
LABEL = re.compile(r"<!-- docs-test: ((?:run|small)(?:, slow)?|file|read: \S.*?) -->\s*")
COMMAND = re.compile(r"\s*(\$|pcmlp|python3?|pip|make|\.venv/bin/\w+) ")
ELSEWHERE = ("ray", "tensorboard", "venv", "wandb")  # programs of others whose arguments are theirs to check


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str  # "" where it is indented, or fenced without one
    fenced: bool
    label: str | None
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """Of a Python block that is a file."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named[1] if named and self.language == "python" else None

    @property
    def commands(self) -> list[tuple[list[str], str]]:
        """The words of each, and what it is shown to print."""
        if self.language == "sh":
            lines = self.text.replace("\\\n", " ").splitlines()
            return [(words, "") for line in lines if (words := shlex.split(line, comments=True))]
        if self.language == "console":
            parts = re.split(r"^\$ (.*)\n", self.text, flags=re.MULTILINE)[1:]
            return [(shlex.split(line), said) for line, said in zip(parts[::2], parts[1::2], strict=True)]
        return []


def blocks(page: str) -> list[Block]:
    found, before = [], None
    for token in MarkdownIt().enable("table").parse((ROOT / page).read_text()):
        if token.type in ("fence", "code_block"):
            label = LABEL.fullmatch(before.content) if before is not None and before.type == "html_block" else None
            line = (token.map or [0])[0] + 1
            language, fenced = token.info.strip(), token.type == "fence"
            found.append(Block(page, line, language, fenced, label and label[1], token.content))
        before = token
    return found


def links(page: str) -> list[tuple[str, str]]:
    """The files and folders that a page links to, "" for itself, and the headings in them."""
    found = []
    for token in MarkdownIt().enable("table").parse((ROOT / page).read_text()):
        for child in token.children or []:
            target = child.attrs.get("href") or child.attrs.get("src")
            if isinstance(target, str) and ":" not in target:
                file, _, heading = target.partition("#")
                found.append((file, unquote(heading)))
    return found


def headings(path: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    tokens = MarkdownIt().enable("table").parse(path.read_text())
    titles = [
        "".join(child.content for child in after.children or [])
        for token, after in zip(tokens, tokens[1:], strict=False)
        if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands_in_text(page: str) -> list[list[str]]:
    """The runs that a sentence or a table names whole, with no placeholder such as DIR in them."""
    tokens = MarkdownIt().enable("table").parse((ROOT / page).read_text())
    codes = [child.content for token in tokens for child in token.children or [] if child.type == "code_inline"]
    return [shlex.split(code) for code in codes if re.match(r"pcmlp train [a-z]", code) and "…" not in code]


def check(words: list[str]) -> None:
    """That a command can be given: its arguments are known, and what it names is there."""
    words = [word for word in words if not re.match("[A-Z_]+=", word)]
    program, rest = Path(words[0]).name, words[1:]
    if program in ("python", "python3") and rest[:1] == ["-m"]:
        program, rest = rest[1], rest[2:]
    if program == "pcmlp":
        command = cli.parse(rest)
        if isinstance(command, Train | Tune):
            settings = [item for items in command.set for item in items]
            settings += ["reward_free=true"] * (isinstance(command, Train) and command.reward_free)
            configuration.resolve(command.task, command.algo, command.seeds, command.steps, settings)
    elif program == "make":
        targets = re.findall(r"^([\w.]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets), words
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        asked = re.findall(r"\[([\w,]+)\]", " ".join(rest))
        assert set(",".join(asked).split(",")) <= {*extras, ""}, words
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in rest if not word.startswith("-")), words
    elif program.startswith("pcmlp."):
        assert importlib.util.find_spec(program), words
    else:
        assert program in ELSEWHERE, f"{words}: a program that tests/documented.py knows nothing of"


def new_folder(words: list[str]) -> str | None:
    """Of a run that a command starts: what is there already would be refused."""
    command = cli.parse(words[1:]) if words[0] == "pcmlp" else None
    if not isinstance(command, Train) or command.resume:
        return None
    kind = TASKS[command.task].kind if command.task in TASKS else "small"
    algo = command.algo or next(iter(methods_for(command.task, kind)))
    return str(command.out or f"{command.task}-{algo}")


def shrink(words: list[str]) -> list[str]:
    """The words of `pcmlp` with fewer episodes and attempts; `train` is made small by its configuration."""
    command = cli.parse(words)
    if isinstance(command, Eval):
        return [*_without(words, "--episodes"), "--episodes", "2"]
    if isinstance(command, Tune):
        return [*_without(words, "--trials"), "--trials", "2"]
    if isinstance(command, Plan) and command.search:
        return [*_without(_without(words, "--num-plans"), "--plan-length"), "--num-plans", "4", "--plan-length", "3"]
    if isinstance(command, Plan):
        return [*_without(_without(words, "--attempts"), "--rounds"), "--attempts", "1", "--rounds", "1"]
    return words


def _without(words: list[str], flag: str) -> list[str]:
    at = words.index(flag) if flag in words else len(words)
    return words[:at] + words[at + 2 :]


def use_small_settings(monkeypatch) -> None:
    """Make every configuration from here on small; as it was asked for, it has to be valid too."""
    from pcmlp.agent import setup

    original = configuration.configure

    def small(task, task_name, algo, seeds, steps, given):
        asked = original(task, task_name, algo, seeds, steps, given)
        tiny = configuration.split_settings(configuration.tiny_overrides(asked))
        shorter = overlay(task, tiny, NAMES, "task.")
        made = original(shorter, task_name, algo, seeds[:2], steps or asked.steps, {**given, **_settings(tiny)})
        return dataclasses.replace(made, steps=min(made.steps, 2 * int(made.steps_per_iteration)))

    def small_environment(task, task_name, algo, seeds, steps, given):
        """An environment has its own horizon, and learns until it is told to stop."""
        asked = original(task, task_name, algo, seeds, steps, given)
        tiny = configuration.split_settings(configuration.tiny_overrides(asked))
        fitting = {"samples_per_policy": str(task.horizon), "replay_size": str(2 * task.horizon)}
        fitting = {key: value for key, value in fitting.items() if key in tiny}
        return original(task, task_name, algo, seeds, steps, {**given, **_settings(tiny), **fitting})

    monkeypatch.setattr(configuration, "configure", small)
    monkeypatch.setattr(setup, "configure", small_environment)


def _settings(tiny: dict[str, str]) -> dict[str, str]:
    """The settings of a method, without those of its task."""
    return {key: value for key, value in tiny.items() if not key.startswith("task.")}
