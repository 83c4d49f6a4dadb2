"""One process agrees with itself; launchers run a function."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from fulmen.engine.launch import ControlExchange, Decision, Launcher

pytestmark = pytest.mark.feature("H-05")


@pytest.mark.parametrize("wishes", list(product([False, True], repeat=4)))
def test_what_one_process_wants_happens_at_once(wishes: tuple[bool, bool, bool, bool]) -> None:
    exchange = pickle.loads(pickle.dumps(ControlExchange()))
    stop, save, time_up, error = wishes
    decision = exchange.agree(stop=stop, save=save, time_up=time_up, error=error)
    assert decision == Decision(stop, save, time_up, error) == wishes
    assert exchange.agree() == Decision()
    assert exchange.every == 1
    exchange.close()


def test_a_launcher_of_ones_own() -> None:
    class Here(Launcher):
        @property
        def is_interactive_compatible(self) -> bool:
            return True

        def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    assert Here().launch(max, 1, 3) == 3
    Here().kill(15)
    with pytest.raises(TypeError, match="launch"):
        Launcher()  # type: ignore[abstract]  # the error is the test
