"""Switching the aliases on and off."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import ExitStack
from importlib.machinery import PathFinder
from pathlib import Path

from fulmen.compat.families import FAMILIES
from fulmen.compat.homes import HOMES
from fulmen.compat.labels import Labels
from fulmen.compat.logs import LogBridge
from fulmen.compat.modules import AbsentModules
from fulmen.engine.runtime.policy import Policy, set_default_policy
from fulmen.errors import MisconfigurationException, warn

ALIAS_PATH = str(Path(__file__).parent / "path")
"""Folder of the alias packages and of their metadata; on no path unless aliases are on."""


class _State:
    undo: ExitStack | None = None


def install_aliases() -> None:
    """Make `lightning`, `pytorch_lightning` and `lightning_fabric` mean Fulmen, here and in processes started here.

    Call it before anything imports one of them. Besides the names: `importlib.metadata` reports a version of Lightning;
    public classes report their Lightning module; log records go by Lightning's logger names; Trainers follow
    `Policy.lightning` unless they are given another policy. A second call does nothing.

    Raises:
        MisconfigurationException: The real package, or a part of it, is imported already.

    Warns:
        FULMEN-W701: The real package is installed and shadowed from now on.
    """
    _switch_on(stacklevel=3)


def ensure_installed() -> None:
    """Switch the aliases on in a process that came to them through its PYTHONPATH alone; alias packages call it."""
    _switch_on(stacklevel=None)


def uninstall_aliases() -> None:
    """Switch the aliases off and put everything back; without aliases it does nothing."""
    if _State.undo is not None:
        undo, _State.undo = _State.undo, None
        undo.close()


def aliases_installed() -> bool:
    """Return whether the aliases are on in this process."""
    return _State.undo is not None


def _switch_on(stacklevel: int | None) -> None:
    if _State.undo is not None:
        return
    _refuse_the_real_one()
    if stacklevel is not None:
        _warn_of_shadowed(stacklevel + 1)
    with ExitStack() as undo:
        _put_on_paths(undo)
        undo.callback(_forget_alias_modules)
        absent = AbsentModules()
        sys.meta_path.append(absent)
        undo.callback(sys.meta_path.remove, absent)
        labels = Labels(HOMES)
        undo.callback(labels.remove)
        labels.install()
        bridge = LogBridge()
        undo.callback(bridge.remove)
        bridge.install()
        undo.callback(set_default_policy, set_default_policy(Policy.lightning))
        _State.undo = undo.pop_all()


def _is_alias(name: str) -> bool:
    module = sys.modules[name]
    return str(getattr(module, "__file__", None) or "").startswith(ALIAS_PATH + os.sep)


def _family_modules() -> list[str]:
    return sorted(name for name in sys.modules if name.partition(".")[0] in FAMILIES)


def _refuse_the_real_one() -> None:
    real = [name for name in _family_modules() if not _is_alias(name)]
    if real:
        where = getattr(sys.modules[real[0]], "__file__", None)
        raise MisconfigurationException(
            f"install_aliases(): {real[0]!r} is imported already, from {where}. Switch the aliases on before the first"
            " import of Lightning, and of libraries that import it: at the top of the script, or with"
            " `python -m fulmen.compat script.py`."
        )


def _warn_of_shadowed(stacklevel: int) -> None:
    elsewhere = [entry for entry in sys.path if entry != ALIAS_PATH]
    shadowed = [name for name in FAMILIES if PathFinder.find_spec(name, elsewhere) is not None]
    if shadowed:
        warn(
            "W701",
            f"{' and '.join(shadowed)} {'is' if len(shadowed) == 1 else 'are'} installed too, and shadowed: until"
            " uninstall_aliases() is called, imports of these names give Fulmen.",
            stacklevel=stacklevel,
        )


def _put_on_paths(undo: ExitStack) -> None:
    sys.path.insert(0, ALIAS_PATH)
    undo.callback(_drop_from_sys_path)
    former = os.environ.get("PYTHONPATH", "")
    if ALIAS_PATH not in former.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([ALIAS_PATH, *([former] if former else [])])
        undo.callback(_drop_from_environment)
    # For started processes that use Fulmen and never import an alias.
    if "FULMEN_COMPAT" not in os.environ:
        os.environ["FULMEN_COMPAT"] = "strict"
        undo.callback(os.environ.pop, "FULMEN_COMPAT", None)
    importlib.invalidate_caches()


def _drop_from_sys_path() -> None:
    if ALIAS_PATH in sys.path:
        sys.path.remove(ALIAS_PATH)
    importlib.invalidate_caches()


def _drop_from_environment() -> None:
    left = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != ALIAS_PATH]
    if left and left != [""]:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)
    else:
        os.environ.pop("PYTHONPATH", None)


def _forget_alias_modules() -> None:
    for name in _family_modules():
        if _is_alias(name):
            del sys.modules[name]
