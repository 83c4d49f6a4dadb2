"""Only rank 0 runs, prints and warns; the environment decides late."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from collections.abc import Iterator

import pytest

from fulmen.utilities.rank_zero import (
    FulmenDeprecationWarning,
    WarningCache,
    log,
    rank_from_env,
    rank_prefixed_message,
    rank_zero_debug,
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
)


@pytest.fixture(autouse=True)
def _no_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"):
        monkeypatch.delenv(name, raising=False)
    yield
    del rank_zero_only.rank


@pytest.mark.feature("H-05")
def test_the_rank_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    @rank_zero_only
    def number() -> int:
        """Docs."""
        return 3

    assert number() == 3
    assert number.__doc__ == "Docs."
    monkeypatch.setenv("SLURM_PROCID", "2")
    assert number() is None
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert number() == 3
    monkeypatch.setenv("RANK", "4")
    assert rank_zero_only.rank == rank_from_env() == 4
    rank_zero_only.rank = 0
    assert number() == 3
    assert rank_zero_only(lambda: 1, default=9)() == 1
    rank_zero_only.rank = 1
    assert rank_zero_only(lambda: 1, default=9)() == 9


def test_nonsense_in_the_environment_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "none")
    assert rank_from_env() is None
    assert rank_zero_only.rank == 0


def test_there_is_one_decorator() -> None:
    assert pickle.loads(pickle.dumps(rank_zero_only)) is rank_zero_only
    assert copy.deepcopy(rank_zero_only) is rank_zero_only


@pytest.mark.feature("H-05")
def test_messages_come_on_rank_zero_only(caplog: pytest.LogCaptureFixture) -> None:
    rank_zero_info("hello %s", "you")
    rank_zero_debug("quiet")
    rank_zero_only.rank = 1
    rank_zero_info("never")
    rank_zero_warn("never")
    rank_zero_deprecation("never")
    assert caplog.messages == ["hello you"]
    assert caplog.records[0].filename == "test_rank_zero.py"


def test_messages_go_to_stderr_unless_logging_is_configured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    rank_zero_info("to the terminal")
    assert capsys.readouterr().err == "to the terminal\n"
    handler = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    rank_zero_info("to the program's own handlers")
    assert capsys.readouterr().err == ""


def test_a_level_of_the_users_own_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = log.level
    try:
        log.setLevel(logging.ERROR)
        rank_zero_info("too low")
    finally:
        log.setLevel(before)
    assert caplog.messages == []


def test_warnings_point_at_the_caller() -> None:
    with pytest.warns(UserWarning, match="look") as seen:
        rank_zero_warn("look")
    assert seen[0].filename == __file__
    with pytest.warns(FulmenDeprecationWarning, match="old") as seen:
        rank_zero_deprecation("old")
    assert seen[0].filename == __file__


def test_a_cache_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    cache = WarningCache()
    with pytest.warns(UserWarning, match="once"):
        cache.warn("once")
    with pytest.warns(FulmenDeprecationWarning, match="gone"):
        cache.deprecation("gone")
    cache.info("news")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.warn("once")
        cache.deprecation("gone")
        cache.info("news")
    assert caplog.messages == ["news"]


def test_prefix() -> None:
    assert rank_prefixed_message("m", None) == "m"
    assert rank_prefixed_message("m", 3) == "[rank: 3] m"
