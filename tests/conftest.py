"""What every test gets: one thread, its own folder, fresh warnings; and the record of which features are proven."""

from __future__ import annotations

import os

# Before torch is imported: two busy processes with two threads each run many times slower on two cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.feature_matrix import FeaturePlugin

# Examples come from a fixed seed, without a time limit each (the machine's speed is no property of the code), and leave
# no database behind.
settings.register_profile(
    "fulmen", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fulmen")


def pytest_configure(config: pytest.Config) -> None:
    import torch

    torch.set_num_threads(1)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background, where shells ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.pluginmanager.has_plugin("fulmen-features"):
        config.pluginmanager.register(FeaturePlugin(), "fulmen-features")


@pytest.fixture(autouse=True)
def _own_folder_and_fresh_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test an empty folder, all once-only warnings still to come, and an environment of its own."""
    from fulmen.errors import forget_warnings
    from fulmen.utilities.rank_zero import rank_zero_debug, rank_zero_only

    rank_zero_debug("")  # the logger gets its level now, and keeps it whatever a test does
    logger = logging.getLogger("fulmen")
    level = logger.level
    monkeypatch.chdir(tmp_path)
    # A seed set by one test would be inherited by the next.
    for name in list(os.environ):
        if name.startswith(("PL_", "FULMEN_")) and not name.startswith("FULMEN_TEST_"):
            monkeypatch.delenv(name)
    before = dict(os.environ)
    forget_warnings()
    yield
    logger.setLevel(level)
    forget_warnings()
    del rank_zero_only.rank  # a strategy set it; from now on the environment is asked again
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
