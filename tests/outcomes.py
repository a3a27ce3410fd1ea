"""What comes out of the commands of a fuzzing case, in a form that can be compared: times, versions and what was typed
are left out. Each function takes the judge, which knows the folders, and what was printed."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from damaged_arrays import payloads, record
from fuzzing import REMOVED
from same_run import assert_same_run

from pcmlp.runs.arrays import load_facts_and_arrays

DATASET = "pcmlp/fuzz-v0"
# What need not be there: some files, the log, a run of several; and a plan begins from the newest checkpoint there is.
_OPTIONAL = re.compile(
    r"(summary|eval|experiment)\.json|places\.csv|who\.csv|episodes|log|checkpoint|held$|lock$|deep$|umaze$"
)


def resumed(judge: Any, said: str) -> Any:
    """The run that came out, which has to be the uninterrupted one."""
    assert_same_run(judge.stage.whole(judge.case), judge.case)
    return shown_table(said)


def finished(judge: Any, said: str) -> Any:
    """The table of a finished run; if it was not taken for finished, also the run."""
    return shown_table(said) if "already finished" in said else resumed(judge, said)


def evaluated(judge: Any, said: str) -> Any:
    """The evaluation."""
    record = json.loads((judge.case / "eval.json").read_text())
    return {name: value for name, value in record.items() if name not in ("device", "versions")}


def planned(judge: Any, said: str) -> Any:
    """The plan and its policies."""
    record = json.loads((judge.out / "plan.json").read_text())
    arrays = load_facts_and_arrays(judge.out / "policy/policy.safetensors")[1]
    kept = {name: record[name] for name in ("aim", "task", "algo", "iteration", "search", "attempts", "seeds")}
    return kept, {name: array.tobytes() for name, array in arrays.items()}


def exported(judge: Any, said: str) -> Any:
    """The dataset."""
    folder, held = judge.datasets / DATASET / "data", {}

    def note(name, item):
        held[name] = {key: str(value) for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            held[name]["values"] = (str(item.dtype), np.asarray(item).tolist())

    with h5py.File(folder / "main_data.hdf5") as file:
        file.visititems(note)
    facts = json.loads((folder / "metadata.json").read_text())
    return held, {name: value for name, value in facts.items() if name not in ("command", "versions")}


def reported(judge: Any, said: str) -> Any:
    """The page without times, the command, the versions and the device."""
    text = (judge.out / "report.html").read_text()
    text = re.sub(r"(settings</summary>\s*)<pre>.*?</pre>", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"· versions:.*?(?=· (certificate|folder): )", "", text, flags=re.DOTALL)
    text = re.sub("<noscript>.*?</noscript>", "", text, flags=re.DOTALL)
    return re.sub(r'<td[^>]* data-label="wall s">.*?</td>', "", text, flags=re.DOTALL).split("\n")


def cut_rows(run: Path) -> None:
    """Drop the last iteration of a run with two seeds from its rows."""
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:-2]))


def cut_log(run: Path) -> None:
    """Drop the last record of the log."""
    log = run / "episodes" / "log"
    log.write_bytes(b"".join(map(record, payloads(log.read_bytes())[:-1])))


def shown_table(said: str) -> str:
    """The results of each seed, as the command prints them."""
    return re.search(r"finished: .*?(?=\n[\d.]+ s, of which)", said, re.DOTALL)[0]


def is_absent(what: str) -> bool:
    """Whether something was only taken away that need not be there: nothing false is shown instead."""
    file, _, way = what.partition(": ")
    taken = way.endswith(REMOVED) or way == "folder_in_place" and "." not in file.rpartition("/")[2]
    return taken and bool(_OPTIONAL.search(file))


def difference(expected: Any, found: Any) -> str:
    """Where two outcomes differ, in a few words."""
    if isinstance(expected, list) and isinstance(found, list):
        pairs = [(a.strip(), b.strip()) for a, b in zip(expected, found, strict=False) if a != b]
        a, b = pairs[0] if pairs else (f"{len(expected)} lines", f"{len(found)} lines")
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
        return f"{a[max(0, at - 40) : at + 60]!r} is now {b[max(0, at - 40) : at + 60]!r}"
    a, b = repr(expected), repr(found)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"{a[max(0, at - 40) : at + 60]} is now {b[max(0, at - 40) : at + 60]}"
