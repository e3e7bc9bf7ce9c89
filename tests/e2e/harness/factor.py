"""T, the factor by which long tests are longer: 1 in `make check`, more in `make check-long`."""

import os

T = float(os.environ.get("T") or 1)


def scaled(n):
    """A count (int) or a time (float), times T."""
    return max(1, round(n * T)) if isinstance(n, int) else n * T


def patience(seconds):
    """A deadline for something whose amount is scaled: longer where T is, and that is all. Nothing passes or fails by it but a hang."""
    return seconds * max(1.0, T / 2)
