"""Waiting for a condition, with a deadline. No test sleeps for any other reason."""

import time


def eventually(predicate, timeout=30.0, what=None, interval=0.05, ignore=()):
    """Calls predicate() until it gives something true, and returns that. Fails after `timeout` seconds, and says what it
    waited for and what it saw last. Exceptions in `ignore` count as "not yet"; an AssertionError always does."""
    deadline = time.monotonic() + timeout
    last = None
    while True:
        try:
            last = predicate()
            if last:
                return last
        except (AssertionError, *ignore) as e:
            last = e
        if time.monotonic() > deadline:
            what = what() if callable(what) else what
            raise AssertionError(f"not within {timeout:g} s: {what or predicate}; last seen: {last!r}")
        time.sleep(interval)


def never(predicate, duration, what=None, interval=0.05):
    """Fails as soon as predicate() gives something true within `duration` seconds. For what must not happen; use it sparingly."""
    deadline = time.monotonic() + duration
    while time.monotonic() < deadline:
        seen = predicate()
        assert not seen, f"happened: {what or predicate}: {seen!r}"
        time.sleep(interval)
