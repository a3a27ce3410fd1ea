"""Who steps an environment's copies: the faster, found out by trying, and only once steps take long."""

import numpy as np
import pytest

from pcmlp.tasks import steppers
from pcmlp.tasks.steppers import Steppers
from pcmlp.workers import Answer, Copies, Workers


class Clock:
    """A step takes as long as who does it says."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(steppers, "time", clock := Clock())
    return clock


def stepping(kind, clock, seconds, fault=""):
    """Copies or workers that take `seconds` for an order."""

    class Fake(kind):
        def __init__(self):
            self.count, self.closed = 3, False

        def ask(self, orders):
            clock.now += seconds * sum(what != "make" for what, *_ in orders)
            return [Answer(fault=fault)] * len(orders)

        def step(self, lanes, actions):
            return self.ask([("step", lane, None) for lane in lanes])

        def close(self):
            self.closed = True

    return Fake()


def walk(pool, count):
    """So many steps; whether others did them."""
    changed = pool.change()
    for _ in range(count):
        pool.step([0], np.zeros((1, 1)))
    return changed


@pytest.mark.parametrize(("there", "workers"), [(0.5, 3), (2.0, 0)])
def test_the_faster_goes_on(clock, there, workers):
    here, others = stepping(Copies, clock, 1.0), stepping(Workers, clock, there)
    pool = Steppers(here, lambda: others)
    assert not walk(pool, 9)
    assert not walk(pool, 1)  # 9 seconds are not long
    assert walk(pool, 30)
    assert pool.workers == 3
    assert walk(pool, 1) == (workers == 0)
    assert pool.workers == workers
    assert (here.closed, others.closed) == (workers == 3, workers == 0)
    assert not walk(pool, 1_000)
    assert not walk(pool, 1)  # that is settled
    assert pool.workers == workers
    assert pool.seconds == pytest.approx(clock.now)


def test_others_that_cannot_make_it_are_not_tried_again(clock):
    here, others = stepping(Copies, clock, 1.0), stepping(Workers, clock, 0.1, fault="raised")
    pool = Steppers(here, lambda: others)
    walk(pool, 20)
    assert not walk(pool, 20)
    assert (pool.workers, here.closed, others.closed) == (0, False, True)
    assert not walk(pool, 20)


def test_without_others_nobody_takes_over(clock):
    pool = Steppers(stepping(Copies, clock, 1.0))
    assert not any(walk(pool, 100) for _ in range(3))
    assert pool.workers == 0
