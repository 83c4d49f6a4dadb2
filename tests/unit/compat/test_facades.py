"""`fulmen.plugins` and `fulmen.pytorch` hold nothing of their own."""

from __future__ import annotations

import importlib

import pytest

import fulmen

ROOMS = ("accelerators", "callbacks", "core", "loggers", "plugins", "strategies", "trainer", "utilities")


@pytest.mark.feature("P-02")
@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_the_long_path_are_the_rooms(room: str) -> None:
    short, long = importlib.import_module(f"fulmen.{room}"), getattr(fulmen.pytorch, room)
    assert long.__name__ == f"fulmen.pytorch.{room}"
    assert dir(long) == sorted(short.__all__)
    assert all(getattr(long, name) is getattr(short, name) for name in short.__all__)
    with pytest.raises(AttributeError):
        long.nothing_of_this_name  # noqa: B018


def test_top_level_names_are_the_same_objects() -> None:
    for name in fulmen.pytorch.__all__:
        assert getattr(fulmen.pytorch, name) is getattr(fulmen, name)
    assert set(fulmen.pytorch.__all__) <= set(dir(fulmen.pytorch))
    with pytest.raises(AttributeError, match="Trainr"):
        fulmen.pytorch.Trainr  # noqa: B018


def test_no_second_copy_of_a_module() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fulmen.pytorch.callbacks.early_stopping")


@pytest.mark.feature("P-02")
def test_plugins_are_the_engines_classes() -> None:
    from fulmen.engine.environments import LightningEnvironment
    from fulmen.engine.precision import MixedPrecision
    from fulmen.engine.storage import TorchCheckpointIO

    assert fulmen.plugins.MixedPrecision is MixedPrecision is fulmen.plugins.precision.MixedPrecision
    assert fulmen.plugins.TorchCheckpointIO is TorchCheckpointIO is fulmen.plugins.io.TorchCheckpointIO
    assert fulmen.plugins.environments.LightningEnvironment is LightningEnvironment
