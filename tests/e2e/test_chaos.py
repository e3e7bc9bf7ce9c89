"""Everything at once, at random: what is promised holds all the same. tests/chaos runs the same for as long as you like."""
import pytest
from harness import chaos
from harness.factor import scaled


@pytest.mark.timeout(1800)
def test_nothing_is_lost_invented_reordered_or_wrongly_parked_in_chaos(seed):
    assert not chaos.run(scaled(50.0), seed)
