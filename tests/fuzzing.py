"""Damage to the files of a run, chosen by a number, so that a case can be repeated.

    damage(folder, random.Random(case), Place(strangers, outside)) -> what was done to which file

Most of the damage knows the format: a field of a JSON object of another type, a row of a table twice, a record of the
log whose CRC is right and whose content is not, a header of a safetensors file that lies. The rest is other bytes, or
something else in the place of a file.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from damaged_arrays import ARRAYS, LOG
from damaged_bytes import BYTES
from damaged_text import JSON, TABLE

REMOVED = "removed"  # said where a file was only taken away
KINDS = {"*.json": JSON, "lock": JSON, "*.csv": TABLE, "log": LOG, "*.safetensors": ARRAYS}


@dataclass(frozen=True)
class Place:
    """Where other files are."""

    strangers: Path  # the folders of other runs
    outside: Path  # a folder that links lead to


def damage(folder, rng, place, likely=""):
    """Damage one thing in a folder, mostly one whose path has `likely` in it; return a line about it."""
    paths = sorted(folder.rglob("*"))
    liked = [path for path in paths if re.search(likely, str(path.relative_to(folder)))]
    some = liked if liked and rng.random() < 0.9 else paths
    path = rng.choice(some)
    if path.is_dir() and rng.random() < 0.8:
        path = rng.choice([path for path in some if path.is_file()] or some)
    name = path.relative_to(folder)
    if path.is_dir() or rng.random() < 0.15:
        way = rng.choice(PLACES if path.is_dir() else [*PLACES, *FILES])
        return f"{name}: {way.__name__} {way(path, rng, place) or ''}".strip()
    knowing = next((ways for pattern, ways in KINDS.items() if path.match(pattern)), BYTES)
    ways = knowing if rng.random() < 0.8 else BYTES
    way = rng.choice(ways)
    data, said = path.read_bytes(), ""
    changed = way(data, rng)
    if isinstance(changed, tuple):
        changed, said = changed
    path.write_bytes(changed)
    return f"{name}: {way.__name__} {said}".strip()


# -- in the place of a file or a folder -------------------------------------------------------------------------------


def drop(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def taken_away(path, rng, place):
    drop(path)
    return REMOVED


def folder_in_place(path, rng, place):
    drop(path)
    path.mkdir()


def fifo_in_place(path, rng, place):
    drop(path)
    os.mkfifo(path)


def link_to_itself(path, rng, place):
    drop(path)
    path.symlink_to(path.name)


def link_to_nothing(path, rng, place):
    drop(path)
    path.symlink_to(place.outside / "absent")


def link_outside(path, rng, place):
    target = place.outside / path.name
    path.rename(target)
    path.symlink_to(target)


def link_to_device(path, rng, place):
    drop(path)
    path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/proc/self/environ"]))


def another_of_this_run(path, rng, place):
    others = [each for each in sorted(path.parent.rglob("*")) if each.is_file() and each != path]
    if others and path.is_file():
        other = rng.choice(others)
        path.write_bytes(other.read_bytes())
        return other.name
    drop(path)
    return REMOVED


def another_runs(path, rng, place):
    """The file of the same name of another run. A summary comes from a run of another configuration: that of a run that
    did the same describes this one as well."""
    found = [each for each in sorted(place.strangers.rglob(path.name)) if each.is_file()]
    found = [each for each in found if path.is_file() and each.read_bytes() != path.read_bytes()]
    if path.name == "summary.json":
        config = path.with_name("config.json").read_bytes()
        found = [each for each in found if each.with_name("config.json").read_bytes() != config]
    if not found:
        drop(path)
        return REMOVED
    other = rng.choice(found)
    path.write_bytes(other.read_bytes())
    return str(other.relative_to(place.strangers))


def renamed(path, rng, place):
    new = rng.choice(["000099.safetensors", "000000.safetensors", "².safetensors", "٣.safetensors", "000002.json", "x",
                      "LOG", "log.new", "plan.json", "metrics.csv", "config.json", "summary.json"])  # fmt: skip
    target = path.with_name(new)
    if not target.exists():
        path.rename(target)
    return f"{new} {REMOVED}"


def copied(path, rng, place):
    """A file more than there was."""
    new = rng.choice(["000099.safetensors", "².safetensors", "-1.safetensors", "000002.json", "plan.json", "x.csv",
                      "summary.json.new", "places.csv", "experiment.json"])  # fmt: skip
    target = path.with_name(new)
    if path.is_file() and not target.exists():
        shutil.copyfile(path, target)
    return new


def huge(path, rng, place):
    """64 GiB of nothing, which take no room."""
    if path.is_file():
        os.truncate(path, 2**36)


PLACES = [taken_away, folder_in_place, fifo_in_place, link_to_itself, link_to_nothing, link_outside, link_to_device]
FILES = [another_of_this_run, another_runs, another_runs, renamed, copied, huge]
