"""Damaged run folders: each is refused in a line, or gives the result of the undamaged one. `make fuzz` has many more.

A case is repeated by its number: `pytest tests/test_fuzz.py -k case-123`. Only the run of combination-lock is made
here, so the numbers are not those of `make fuzz`, which has other runs as well.
"""

import pytest
from judging import BAD, Judge
from staging import Stage

CASES = 240


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCMLP_CACHE", "off")
        stage = Stage(place / "stage", names=("lock",))
        stage.build()
        with Judge(stage, place / "work") as judge:
            yield judge


@pytest.mark.parametrize("number", range(CASES), ids=lambda number: f"case-{number}")
@pytest.mark.fault("a file of a run that was damaged", "refused in a line, or the result is that of the undamaged run")
def test_damage_is_refused_or_harmless(judge, number):
    case = judge.judge(number)
    assert case.verdict not in BAD, case


@pytest.mark.parametrize(("damage", "verdict"), [
    (lambda run: None, "same"),
    (lambda run: (run / "policy/policy.safetensors").write_bytes(b""), "refused"),
    (lambda run: (run / "config.json").unlink(), "refused"),
])  # fmt: skip
def test_the_judge_sees_what_was_refused(judge, damage, verdict):
    scene = next(scene for scene in judge.scenes if scene.name == "eval")
    expected = judge.expect(scene)
    judge.set_up(scene)
    damage(judge.case)
    assert judge.compare(scene, "", expected)[0] == verdict


def raises(*_):
    raise KeyError("seeds")


def hangs(*_):
    while True:
        pass


@pytest.mark.parametrize(("patched", "verdict"), [
    (raises, "traceback"),
    (hangs, "hang"),
    (lambda saved, episodes, seed: ([], {"success": None}), "other"),
])  # fmt: skip
def test_the_judge_sees_what_is_bad(judge, monkeypatch, patched, verdict):
    monkeypatch.setattr("judging.LIMIT", 0.3)
    scene = next(scene for scene in judge.scenes if scene.name == "eval")
    expected = judge.expect(scene)
    judge.set_up(scene)
    monkeypatch.setattr("pcmlp.runs.evaluate._measure", patched)
    assert judge.compare(scene, "", expected)[0] == verdict
