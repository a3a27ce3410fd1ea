"""Run folders for tests of pictures and pages, written by hand: no run was run."""

import hashlib
import json
from html.parser import HTMLParser

import numpy as np

from pcmlp.replay import Transitions
from pcmlp.report.experiment import hash_tables
from pcmlp.report.reading import load
from pcmlp.runs.durable import read_json, read_sealed, write_sealed
from pcmlp.runs.episodes import EpisodeLog, log_path
from pcmlp.runs.folder import RunFolder
from pcmlp.runs.manifest import Manifest, hash_config
from pcmlp.runs.metrics import hash_rows, read_rows
from pcmlp.tasks import TASKS

SEEDS = (0, 4)
STATES = {  # task -> a state of which two numbers were drawn
    "mountain-car": lambda z: z * np.array([0.5, 0.02]),
    "acrobot": lambda z: np.concatenate([np.cos(z[..., :1]), np.sin(z), np.cos(z[..., 1:]), z, z], axis=-1)[..., :6],
    "pendulum": lambda z: np.stack([np.cos(z[..., 0]), np.sin(z[..., 0]), z[..., 1]], axis=-1),
    "point-umaze": lambda z: np.clip(0.5 + 0.3 * np.abs(z), 0, 1),
    "ant-umaze": lambda z: np.concatenate([z, np.zeros((*z.shape[:-1], 27))], axis=-1),
    "hand-egg": lambda z: np.concatenate([np.zeros((*z.shape[:-1], 61)), 1 + 0.1 * z], axis=-1),
}


def rows_of(state, action, *, next_state=None, last=None):
    """The steps of two seeds; the second seed has a row less."""
    no = np.zeros(state.shape[:2], bool)
    valid = ~no
    valid[1, -1] = False
    next_state, last = state if next_state is None else next_state, no if last is None else last
    return Transitions.of_arrays(state, action, np.zeros(no.shape, np.float32), next_state, no, last, valid)


def write_run(
    path,
    iterations=3,
    *,
    task="somewhere",
    state_shape=(),
    deep=False,
    bonus=1.0,
    goal=True,
    summary=True,
    horizon=None,
):
    """With episodes as long as the task has them, where it is one of ours and no others are asked for."""
    horizon = horizon or (TASKS[task].horizon if task in TASKS else 5)
    config = {"task": {"name": task, "horizon": horizon}, "algo": "pcmlp", "seeds": SEEDS, "steps": 15}
    config["bonus_scale"] = bonus
    folder, held = RunFolder.create(path, json.dumps(config))
    held.close()
    rng = np.random.default_rng(0)
    with EpisodeLog(folder.episodes) as log:
        for n in range(iterations + 1):
            success = min(1.0, n / 2) if goal else None
            scores = {"eval_return_mean": 0.1 * n, "eval_return_std": 0.0, "eval_success": success, "wall_s": 1.5 * n}
            if n:
                scores |= {"bonus_mean": bonus / n**2, "info_gain": 1.0 * n}
                scores |= {"explore_return_mean": 0.05 * n, "explore_success": success} if deep else {}
            folder.metrics.append([{"iteration": n, "seed": s, "env_steps": 5 * n + s, **scores} for s in SEEDS])
            if n:
                z = rng.normal(size=(2, 5, 2))
                vectors = STATES[task](z) if task in STATES else rng.normal(size=(2, 5, *state_shape))
                state = vectors.astype(np.float32) if task in STATES or state_shape else rng.integers(0, 4, (2, 5))
                log.append(n, SEEDS, rows_of(state, rng.integers(0, 3, (2, 5))))
    if summary:
        versions = {"python": "3.11", "jax": "0.10"}
        command = f"pcmlp train {task} --set 'x=<b>'"
        facts = {"status": "finished", "command": command, "wall_s": 7.25, "device": "cpu", "versions": versions}
        write_summary(path, facts)
    return path


def write_summary(path, summary):
    """Write a summary with hashes that fit the files beside it."""
    rows, log = read_rows(path), log_path(path / "episodes")
    written = log.read_bytes() if log.exists() else None
    sealed = (None, None) if written is None else (len(written), hashlib.sha256(written).hexdigest())
    hashes = (
        hash_config(read_json(path / "config.json")),
        len(rows),
        hash_rows(rows),
    )
    write_sealed(path / "summary.json", {**summary, "manifest": Manifest(*hashes, *sealed).record})


def change_summary(path, **changes):
    """Write the summary again, with these changes and hashes that fit the files beside it."""
    write_summary(path, {**read_sealed(path / "summary.json"), **changes})


def returning(path, *returns, task, done=True, horizon=None):
    """A run whose last evaluation is of these returns, a seed each."""
    run = load(write_run(path, 2, task=task, goal=False, summary=done, horizon=horizon))
    run.metrics["eval_return_mean"][-1] = returns
    return run


def write_experiment(folder, *runs, **changes):
    """What an experiment says of itself and of runs, which may lie elsewhere."""
    said = {"title": "It vanishes", "place": "section 7.5", "shows": "how", "command": "pcmlp paper it", "order": 4}
    folder.mkdir(exist_ok=True)
    tables = hash_tables(folder)
    write_sealed(folder / "experiment.json", {**said, "scale": "full", "runs": runs, "tables": tables, **changes})
    return folder / "experiment.json"


class Page(HTMLParser):
    """What a page shows, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.links, self.words, self.inside = [], set(), [], "", []
        self.inline, self.policy = [], {}  # the text of each style and script; directive -> sources
        self.feed(text)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag == "style" or (tag == "script" and ("type", "application/json") not in attrs):
            self.inline.append((tag, ""))
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = read_policy(dict(attrs)["content"])

    def handle_endtag(self, tag):
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data):
        if self.inline and self.inside[-1] == self.inline[-1][0]:
            self.inline[-1] = (self.inline[-1][0], self.inline[-1][1] + data)
        if not {"script", "style"} & set(self.inside):
            self.words += data


def read_policy(text):
    """The sources of each directive of a content security policy."""
    return {name: sources for name, *sources in (rule.split() for rule in text.split(";"))}
