"""Settings that mean nothing to an algorithm: refused where a user gives them, kept where a configuration has them."""

import json

import pytest

from pcmlp.cli import main
from pcmlp.runs.config import from_json, resolve, settings_in, to_json
from pcmlp.runs.meaning import MEANINGLESS, check_meant

CAR = "mountain-car"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("algo", "settings", "said"),
    [
        (
            "slbo",
            "ridge=0.1",
            "ridge=0.1: slbo has no such setting: it plans for the reward alone, with no bonus; leave",
        ),
        ("slbo", "rounds=3 features.sizes=16", "features.sizes=16: slbo has no such setting: it plans for the reward"),
        ("pets", "covariance=off", "covariance=off: pets has no such setting"),
        ("pets", "keeps_better=true", "keeps_better=true: pets has no such setting: it searches for each action"),
        ("pets-gt", "features.dim=4", "features.dim=4: pets-gt has no such setting"),
        ("mbpo", "ridge=1", "ridge=1: mbpo has no such setting"),
        ("mbpo", "margin=1", "margin=1: imagined states have no bounds here; leave it out, or give bounded=true"),
        ("lc3", "covariance=off", "covariance=off: lc3 has no such setting"),
        (
            "rnd",
            "ridge=1",
            "ridge=1: rnd has no such setting: its bonus is of a distilled network, not of a covariance",
        ),
        ("random", "replay_starts=0.5", "replay_starts=0.5: random has no such setting: it plays at random"),
        ("random", "model.steps=5", "model.steps=5: random has no such setting"),
        ("pcmlp-mppi", "keeps_better=true", "keeps_better=true: pcmlp-mppi has no such setting"),
        ("pcmlp", "bounded=false margin=1", "margin=1: imagined states have no bounds here"),
    ],
)
def test_what_means_nothing_to_a_rival_is_refused(algo, settings, said, tmp_path, capsys):
    assert main(["train", CAR, "--algo", algo, "--out", str(tmp_path / "run"), "--set", *settings.split()]) == 2
    line = capsys.readouterr().err.strip()
    assert said in line
    assert "\n" not in line
    assert not (tmp_path / "run").exists()


def test_what_means_something_is_taken():
    check_meant(resolve(CAR, "lc3"), ["features.dim=8", "replay_size=50"])
    check_meant(resolve(CAR, "mbpo"), ["replay_starts=0.5", "num_starts=10"])
    check_meant(resolve(CAR, "mbpo", settings=["bounded=true"]), ["bounded=true", "margin=1"])
    check_meant(resolve(CAR, "random"), ["reward_free=true", "samples_per_policy=400"])
    check_meant(resolve(CAR, "pcmlp"), ["ridge=1", "covariance=off", "features.sizes=16", "margin=1"])
    check_meant(resolve("combination-lock", "random"), ["ridge=1"])  # not that loop


def test_every_setting_that_means_nothing_is_one_and_a_configuration_has_it():
    """A run's config.json holds them, and can be read again."""
    for algo, whys in MEANINGLESS.items():
        config = resolve(CAR, algo)
        given = settings_in(json.loads(to_json(config)))
        for name in (name for names in whys.values() for name in names):
            assert any(item.startswith(name if name.endswith(".") else f"{name}=") for item in given), (algo, name)
        assert from_json(to_json(config)) == config
