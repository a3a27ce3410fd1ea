"""Waiting for something that another process or thread does."""

import time


def wait_until(happened, seconds=20.0):
    """Wait until `happened()` is true; fail if that takes longer."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)
