"""Success by groups of episodes, and how certain a share is."""

import dataclasses
import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pcmlp.cli import main
from pcmlp.runs.evaluate import evaluate_run
from pcmlp.runs.policy import load_run
from pcmlp.successes import Groups, describe_success, interval

SMALL = "task.horizon=10 eval_episodes=2 samples_per_policy=10"
TRAIN = f"train point-umaze --algo random --seeds 0 7 --steps 20 --set {SMALL}"
SIDES = Groups(("left", "right", "nowhere"), lambda state: jnp.where(state[0] < 0.5, 0, 1), 40)


def spread(key):
    """Begin anywhere in the lower left square."""
    return jr.uniform(key, (2,))


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [(0, 300, 0.0, 0.01264), (3, 300, 0.00340, 0.02898), (150, 300, 0.44378, 0.55622), (300, 300, 0.98736, 1.0)],
)
def test_wilsons_interval(successes, episodes, low, high):
    np.testing.assert_allclose(interval(successes, episodes), (low, high), atol=2e-5)


def test_the_interval_holds_the_share_as_often_as_it_says():
    """Also of a rare success, where the usual interval does not."""
    rng = np.random.default_rng(0)
    for share in (0.02, 0.5):
        bounds = np.array([interval(count, 300) for count in rng.binomial(300, share, 2_000).tolist()])
        assert 0.93 < np.mean((bounds[:, 0] <= share) & (share <= bounds[:, 1])) < 0.97


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "maze"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCMLP_CACHE", "off")
        assert main([*TRAIN.split(), "--out", str(out)]) == 0
    return load_run(out)


def test_success_is_told_apart_by_the_first_state(saved):
    """Where being on the right at first is what succeeds, one group always does and the other never."""
    world = saved.problem.world
    right = dataclasses.replace(
        world.mdp,
        initial=spread,
        transition=lambda key, state, action: state,
        reward=lambda state, action, next_state: jnp.where(state[0] < 0.5, 0.0, 1.0),
        terminal=lambda state, action, next_state: jnp.array(False),
    )
    problem = dataclasses.replace(
        saved.problem, world=dataclasses.replace(world, mdp=right), success_return=1.0, groups=SIDES
    )
    result = evaluate_run(saved._replace(problem=problem))
    assert result["episodes"] == 40
    assert json.loads((saved.path / "eval.json").read_text()) == result
    for row, episodes in ((result["seeds"][0], 40), (result["seeds"][1], 40), (result["all_seeds"], 80)):
        left, right, nowhere = row["groups"]
        assert (left["name"], left["success"], right["success"]) == ("left", 0.0, 1.0)
        assert left["episodes"] + right["episodes"] == episodes
        assert 0.2 < left["episodes"] / episodes < 0.8
        assert row["success"] == right["episodes"] / episodes
        assert row["success_interval"] == list(interval(right["episodes"], episodes))
        assert (nowhere["episodes"], nowhere["success"], nowhere["success_interval"]) == (0, None, None)
    lines = describe_success(result["all_seeds"])
    assert [line.split(":")[0] for line in lines] == ["success", "left", "right"]
    again = evaluate_run(saved._replace(problem=problem), 10, 3)
    assert again["seeds"][0]["groups"] == again["seeds"][1]["groups"]  # an evaluation seed gives all the same episodes


def test_a_task_without_groups(saved, capsys):
    result = evaluate_run(saved)
    assert result["episodes"] == 20
    assert "groups" not in result["all_seeds"]
    unknown = evaluate_run(saved._replace(problem=dataclasses.replace(saved.problem, success_return=None)), 2)
    assert unknown["all_seeds"] == {"success": None, "success_interval": None}
    assert describe_success(unknown["all_seeds"]) == []
    assert main(["eval", str(saved.path), "--episodes", "3"]) == 0  # of each of two seeds
    assert "success: 0.0 % (95 % interval 0.0 to 39.0 %)" in capsys.readouterr().out
