"""How much of a test runs: `tests/run.sh --quick`, `tests/run.sh`, `tests/run.sh --all`. Each tier contains the one before."""

import os

QUICK, DEFAULT, ALL = "quick", "default", "all"
TIER = os.environ.get("STACKD_TEST_TIER", DEFAULT)
FULL = TIER == ALL

# For how long a program in which everything comes and goes is dumped, again and again.
CHURN_S = 300 if FULL else 12
# For how long a flood comes.
FLOOD_S = 60 if FULL else 3
# How often a program is dumped whose locks go back and forth, and which no dump may call deadlocked.
DUMPS_OF_TURNS = 5000 if FULL else 10
DUMPS_OF_GOROUTINES = 300 if FULL else 5


def versions(found):
    """Versions of a runtime that the tests of this tier run, of all that are here, oldest first."""
    if TIER == ALL or len(found) <= 2:
        return list(found)
    return found[-1:] if TIER == QUICK else [found[0], found[-1]]
