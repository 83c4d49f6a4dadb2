"""Parts of the aliases that can be tested without switching them on."""

from __future__ import annotations

import io
import logging
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fulmen.compat import install
from fulmen.compat.labels import Labels
from fulmen.compat.logs import LogBridge, lightning_name
from fulmen.compat.modules import absent, lazy
from fulmen.errors import MisconfigurationException
from fulmen.utilities.rank_zero import rank_zero_info

SOURCE = """
from __future__ import annotations
from collections import OrderedDict
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from somewhere import Absent
class Public:
    here: OrderedDict[str, int]
    there: Absent
class Other:
    pass
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module that has not been imported yet."""
    (tmp_path / "labelled_toy.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "labelled_toy"
    sys.modules.pop("labelled_toy", None)


@pytest.mark.feature("P-01")
@pytest.mark.parametrize("before", [True, False])
def test_labels_of_modules_imported_before_and_after(toy: str, before: bool) -> None:
    labels = Labels({toy: {"Public": "lightning.home"}})
    if before:
        __import__(toy)
    labels.install()
    try:
        module = __import__(toy)
        assert module.Public.__module__ == "lightning.home"
        assert module.Other.__module__ == toy
        # Annotations no longer depend on the reported module; those for type checkers stay as they are.
        assert typing.get_origin(module.Public.__annotations__["here"]).__name__ == "OrderedDict"
        assert module.Public.__annotations__["there"] == "Absent"
    finally:
        labels.remove()
    assert module.Public.__module__ == toy
    assert module.Public.__annotations__["here"] == "OrderedDict[str, int]"
    assert labels not in sys.meta_path


def test_absent_names_say_so() -> None:
    sys.modules["toy_alias"] = module = ModuleType("toy_alias")
    try:
        module.__dict__["__getattr__"] = absent("toy_alias", ["EarlyStopping"])
        with pytest.raises(ImportError, match=r"toy_alias\.EarlyStoping is not in .*Did you mean 'EarlyStopping'\?"):
            from toy_alias import EarlyStoping  # noqa: F401
        with pytest.raises(AttributeError, match=r"toy_alias\.Other is not in this version of Fulmen"):
            module.Other  # noqa: B018
        assert not hasattr(module, "__wrapped__")
        assert getattr(module, "Other", None) is None
    finally:
        del sys.modules["toy_alias"]


def test_lazy_names_are_looked_up_once() -> None:
    sys.modules["toy_alias"] = module = ModuleType("toy_alias")
    try:
        names = {"fulmen.errors": "FulmenError suggest@propose"}
        module.__dict__["__getattr__"], module.__dict__["__dir__"] = lazy("toy_alias", names, "below")
        from fulmen.errors import FulmenError, suggest

        assert module.propose is suggest
        assert vars(module)["propose"] is suggest
        assert module.FulmenError is FulmenError
        assert {"FulmenError", "propose", "below"} <= set(dir(module))
        with pytest.raises(ModuleNotFoundError):
            module.below  # noqa: B018
    finally:
        del sys.modules["toy_alias"]


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


@pytest.fixture
def bridge() -> Iterator[LogBridge]:
    bridge = LogBridge()
    bridge.install()
    yield bridge
    bridge.remove()


def _listen(*names: str | None) -> tuple[list[_Records], list[logging.Logger]]:
    loggers = [logging.getLogger(name) for name in names]
    handlers = [_Records() for _ in names]
    for logger, handler in zip(loggers, handlers, strict=True):
        logger.addHandler(handler)
    return handlers, loggers


@pytest.mark.feature("P-01", "P-08")
def test_records_reach_all_spellings_once(bridge: LogBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("lightning"), "propagate", True)
    handlers, loggers = _listen("lightning.pytorch", "pytorch_lightning", "fulmen", None)
    try:
        rank_zero_info("hello")
        logging.getLogger("fulmen.callbacks.early_stopping").info("stopping")
    finally:
        for logger, handler in zip(loggers, handlers, strict=True):
            logger.removeHandler(handler)
    long, short, own, root = (h.names for h in handlers)
    assert long == ["lightning.pytorch.utilities.rank_zero", "lightning.pytorch.callbacks.early_stopping"]
    assert short == ["pytorch_lightning.utilities.rank_zero", "pytorch_lightning.callbacks.early_stopping"]
    assert own == ["fulmen", "fulmen.callbacks.early_stopping"]
    assert root == long


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_levels_of_lightnings_loggers_silence_the_console(
    bridge: LogBridge, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # else the root logger's handlers write, not Fulmen
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    logger = logging.getLogger(name)
    former = logger.level
    rank_zero_info("said")
    logger.setLevel(logging.ERROR)
    rank_zero_info("not said")
    logger.setLevel(former)
    assert stream.getvalue() == "said\n"


def test_bridge_puts_everything_back() -> None:
    own = logging.getLogger("fulmen")
    rank_zero_info("configures the console")
    names = ("fulmen", "lightning", "lightning.pytorch", "pytorch_lightning", "lightning_fabric")

    def state() -> list[object]:
        loggers = [logging.getLogger(n) for n in names]
        return [[x.level for x in loggers], list(own.handlers), own.parent, [h.filters[:] for h in own.handlers]]

    before = state()
    bridge = LogBridge()
    bridge.install()
    assert state() != before
    bridge.remove()
    assert state() == before


def test_logger_names() -> None:
    assert lightning_name("fulmen.callbacks.early_stopping") == "lightning.pytorch.callbacks.early_stopping"
    assert lightning_name("fulmen.data.plan") == "lightning.pytorch.utilities.rank_zero"


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning", "lightning_fabric.utilities"])
def test_real_package_imported_before_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for loaded in [m for m in sys.modules if m.partition(".")[0] in install.FAMILIES]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    path, meta_path = list(sys.path), list(sys.meta_path)
    with pytest.raises(MisconfigurationException, match=f"'{name}' is imported already.*before the first"):
        install.install_aliases()
    assert (sys.path, sys.meta_path) == (path, meta_path)
    assert not install.aliases_installed()
    install.uninstall_aliases()  # does nothing
