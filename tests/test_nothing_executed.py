"""No file of a run is ever executed: nothing in the library could, and files that try are refused."""

import io
import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import pcmlp
from pcmlp.cli import main
from pcmlp.errors import ConfigError
from pcmlp.runs import arrays
from pcmlp.runs.config import resolve
from pcmlp.runs.episodes import log_path
from pcmlp.runs.policy import load_run
from pcmlp.runs.train import train

SOURCE = Path(pcmlp.__file__).parent
FORBIDDEN = re.compile(
    r"\b(pickle|cloudpickle|dill|joblib|marshal|shelve)\b|(?<!\.)\b(eval|exec|compile)\(|builtins|allow_pickle=True|exec_module|import_module"
)


def test_nothing_in_the_source_executes_a_file():
    """Pickle is for the pipes of worker processes alone."""
    found = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in SOURCE.rglob("*.py")
        for line in file.read_text().splitlines()
        if FORBIDDEN.search(line.split("#")[0]) and not line.lstrip().startswith(('"""', "#"))
    ]
    # A file of functions that a user names, which is not imported for a run's sake unless the user says so.
    # `import pcmlp` imports its own names late, from a table in the source.
    # Two packages, named in the source, register their environments when they are imported.
    late, registering = "__init__.py: found = globals()[name]", "tasks/registered.py: importlib.import_module(package)"
    allowed = [line for line in found if line.startswith(("workers.py", "tasks/environments.py", late, registering))]
    assert sorted(set(found) - set(allowed)) == ["usercode.py: spec.loader.exec_module(module)"]
    assert FORBIDDEN.search("np.load(x, allow_pickle=True)")
    assert FORBIDDEN.search("import pickle")


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def config():
    return resolve("combination-lock", seeds=(0,), steps=9, settings=("task.horizon=3", "task.actions=2"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(config(), out, console=Console(file=io.StringIO()))
    return out


@pytest.fixture
def cut(run, tmp_path):
    """The run, as if it had been cut off after its last checkpoint."""
    again = shutil.copytree(run, tmp_path / "run")
    (again / "summary.json").unlink()
    return again


def write_bomb(file, bomb):
    """Write a pickle as an array of a file, which is otherwise whole: its facts and its hash fit."""
    facts, held = arrays.read_facts(file), {"env_steps": np.frombuffer(bomb, np.uint8)}
    file.write_bytes(arrays.pack(held, {"facts": facts, "sha256": arrays._digest(held, facts)}))


@pytest.mark.fault(
    "a pickle that would run code, as arrays of a checkpoint with hashes that fit", "refused, nothing runs"
)
def test_a_checkpoint_that_is_a_pickle(cut, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    file = cut / "checkpoint" / "000003.safetensors"
    write_bomb(file, bomb)
    with pytest.raises(ConfigError, match="written by another version of pcmlp"):
        train(config(), cut, resume=True)
    file.write_bytes(bomb)  # the whole file
    with pytest.raises(ConfigError, match="000003.safetensors: truncated or edited"):
        train(config(), cut, resume=True)
    assert not (tmp_path / "boom").exists()
    pickle.loads(bomb)
    assert (tmp_path / "boom").exists()  # it would have


@pytest.mark.fault(
    "a pickle that would run code, as a policy, an episode log or a user's array", "refused, nothing runs"
)
def test_other_files_that_are_pickles(cut, tmp_path, capsys):
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    policy = cut / "policy" / "policy.safetensors"
    write_bomb(policy, bomb)
    with pytest.raises(ConfigError, match="not the policy of this version"):
        load_run(cut)
    policy.write_bytes(bomb)
    with pytest.raises(ConfigError, match="policy.safetensors: truncated or edited"):
        load_run(cut)
    log_path(cut / "episodes").write_bytes(bomb)
    with pytest.raises(ConfigError, match="episodes/log: truncated or edited"):
        train(config(), cut, resume=True)
    np.save(tmp_path / "bomb.npy", np.array([Bomb(tmp_path / "boom")], dtype=object), allow_pickle=True)
    assert main(["train", "low-rank", "--set", f"task.upsilon={tmp_path / 'bomb.npy'}"]) == 2
    assert "bomb.npy" in capsys.readouterr().err
    assert not (tmp_path / "boom").exists()
