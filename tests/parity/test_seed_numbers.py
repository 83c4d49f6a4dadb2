"""Seeds and loader workers' seeds are those of the installed Lightning."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from fulmen.utilities.seed import pl_worker_init_function, seed_everything, seed_sequence

theirs = pytest.importorskip("lightning.fabric.utilities.seed")


def draw() -> tuple[Any, ...]:
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()


@pytest.mark.feature("T-16")
def test_numbers_are_lightnings() -> None:
    for arguments in ((1, 2, 3), (0, 0, 0), (2**40 + 5, 7, 11)):
        assert seed_sequence(*arguments, 4) == theirs._generate_seed_sequence(*arguments, count=4)
    theirs.seed_everything(21, verbose=False)
    first = draw()
    seed_everything(21, verbose=False)
    assert draw() == first
    torch.manual_seed(5)
    theirs.pl_worker_init_function(2, rank=1)
    first = draw()
    torch.manual_seed(5)
    pl_worker_init_function(2, rank=1)
    assert draw() == first
