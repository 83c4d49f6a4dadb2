"""What tests/conftest.py promises to every test."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch

from fulmen.errors import FulmenWarning, warn


def test_own_folder(tmp_path: Path) -> None:
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_one_thread() -> None:
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("time", [1, 2])
def test_once_only_warnings_come_in_each_test(time: int) -> None:
    with pytest.warns(FulmenWarning, match="FULMEN-W999"):
        warn("W999", "a warning")


@pytest.mark.parametrize("time", [1, 2])
def test_environment_is_given_back(time: int) -> None:
    assert "PL_GLOBAL_SEED" not in os.environ
    os.environ["PL_GLOBAL_SEED"] = "1"


def test_warnings_are_errors() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("not expected", UserWarning, stacklevel=1)
