"""Hyperparameters: remember what an object was built with, so that a checkpoint can build it again."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

from torch import Tensor, nn

from fulmen.engine.storage.safe_types import add_safe_types
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, suggest, warn
from fulmen.utilities.parsing import AttributeDict, init_args_of

# It may stand inside of stored values; building one only keeps its entries.
add_safe_types(AttributeDict)

# Entries that the command line interface adds for itself; they are no values of the user's.
INTERNAL_KEYS = ("_class_path", "_instantiator")

_ACCEPTED = "a dict, a Namespace, a dataclass object or another mutable mapping (OmegaConf)"


class HparamsConflictError(MisconfigurationException, RuntimeError):
    """A module and a data module store different values under one name."""


@dataclasses.dataclass(frozen=True)
class _Given:
    values: dict[str, Any]
    owner: type | None


_GIVEN: ContextVar[_Given | None] = ContextVar("fulmen_given_hyperparameters", default=None)


@contextlib.contextmanager
def given_hyperparameters(hparams: Mapping[str, Any], instantiator: str, owner: type | None = None) -> Iterator[None]:
    """Let `save_hyperparameters` store these values instead of the constructor's arguments.

    For tools that build objects from a configuration: the configuration is stored, not the objects built from it.

    Args:
        hparams: The configuration.
        instantiator: Dotted name of the registered function that builds the object from it (see
            `fulmen.core.saving.register_instantiator`).
        owner: Only objects of exactly this class take the values; `None`: every object built inside of the context.
    """
    token = _GIVEN.set(_Given({**hparams, "_instantiator": instantiator}, owner))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def _given_to(obj: object) -> dict[str, Any] | None:
    given = _GIVEN.get()
    if given is None or (given.owner is not None and type(obj) is not given.owner):
        return None
    return dict(given.values)


class HyperparametersMixin:
    """Adds `save_hyperparameters`, `hparams` and `hparams_initial` to a class."""

    __jit_unused_properties__: ClassVar[list[str]] = ["hparams", "hparams_initial"]

    # A class attribute, so that objects whose constructor does not reach this class (dataclasses) have it, too.
    _log_hyperparams: bool = False

    def save_hyperparameters(
        self,
        *args: Any,
        ignore: Sequence[str] | str | None = None,
        frame: FrameType | None = None,
        logger: bool = True,
    ) -> None:
        """Store arguments of the constructor in `hparams`, from where they get into every checkpoint.

        To be called in ``__init__``, or in a function that ``__init__`` calls. A second call adds to the first one, so
        a base class and the classes derived from it may each call it.

        Args:
            *args: Nothing, to store all arguments; or names of arguments; or one object that holds the values: a
                dict, a Namespace, a dataclass object or a mutable mapping (OmegaConf).
            ignore: Name or names to leave out; they are also removed if a base class has stored them.
            frame: Frame in which, or above which, the constructor runs; by default the caller's.
            logger: Whether the trainer sends these values to its loggers when it starts.

        Raises:
            ArgumentValueError: A name is no argument of the constructor, values were given instead of names, or
                names and an object were mixed.
            ArgumentTypeError: `ignore` or `frame` is of another type.

        Example:
            >>> class Model(HyperparametersMixin):
            ...     def __init__(self, width, depth=2, net=None):
            ...         self.save_hyperparameters(ignore="net")
            >>> Model(8).hparams
            "depth": 2
            "width": 8
        """
        where = f"{type(self).__name__}.save_hyperparameters"
        ignored = _as_names(ignore, where)
        if frame is None:
            here = inspect.currentframe()
            frame = here.f_back if here is not None else None
        elif not isinstance(frame, FrameType):
            raise ArgumentTypeError(
                f"{where}(frame={frame!r}): give a frame, such as `inspect.currentframe()`, or leave it out."
            )
        self._log_hyperparams = bool(logger)
        if len(args) == 1 and (args[0] is None or (_is_container(args[0]) and not _plain(args[0]))):
            return
        arguments = _given_to(self)
        if arguments is None:
            arguments = _arguments_of(self, frame)
        known = None if arguments is None else {k: v for k, v in arguments.items() if k not in ignored}
        chosen, self._hparams_name = _choose(args, known, where)
        self._set_hparams(chosen)
        self.remove_ignored_hparams(ignored)
        _warn_of_modules(self.hparams, type(self).__name__)
        self._hparams_initial = copy_hparams(self.hparams)

    def _set_hparams(self, hp: MutableMapping[str, Any] | Namespace | Any) -> None:
        hp = self._to_hparams_dict(hp)
        if isinstance(hp, dict) and isinstance(self.hparams, dict):
            self.hparams.update(hp)
        else:
            self._hparams = hp

    @staticmethod
    def _to_hparams_dict(hp: MutableMapping[str, Any] | Namespace | Any) -> MutableMapping[str, Any]:
        if not _is_container(hp):
            raise ArgumentValueError(
                f"save_hyperparameters({hp!r}): {type(hp).__name__} is not accepted. Give names of arguments as"
                f" strings, as in `save_hyperparameters('lr')`, or one object that holds them: {_ACCEPTED}."
            )
        plain = _plain(hp)
        return AttributeDict(plain) if isinstance(plain, dict) else plain

    def remove_ignored_hparams(self, ignore_list: Iterable[str]) -> None:
        """Remove entries from `hparams`, for example ones that a base class has stored.

        Args:
            ignore_list: Names; those that are not stored are passed over.
        """
        for name in ignore_list:
            self.hparams.pop(name, None)

    @property
    def hparams(self) -> AttributeDict | MutableMapping[str, Any]:
        """The stored hyperparameters; changes show in checkpoints written afterwards."""
        stored = self.__dict__.get("_hparams")
        if stored is None:
            stored = self.__dict__["_hparams"] = AttributeDict()
        return stored

    @property
    def hparams_initial(self) -> AttributeDict | MutableMapping[str, Any]:
        """A copy of the hyperparameters as they were when they were saved last; this is what loggers get.

        Modules, and values that cannot be copied, are in it as they are.
        """
        return copy_hparams(self.__dict__.get("_hparams_initial", AttributeDict()))


def _as_names(ignore: Any, where: str) -> list[str]:
    if ignore is None:
        return []
    names = [ignore] if isinstance(ignore, str) else ignore
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(n, str) for n in names):
        raise ArgumentTypeError(
            f"{where}(ignore={ignore!r}): give a name or a list of names, as in `ignore=['net', 'loss']`."
        )
    return list(names)


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping | Namespace | SimpleNamespace) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def _plain(container: Any) -> Any:
    """Return a container's values as a dict; other mutable mappings (OmegaConf) stay what they are."""
    if isinstance(container, Namespace | SimpleNamespace):
        return vars(container)
    if isinstance(container, MutableMapping):
        return container
    if isinstance(container, Mapping):
        return dict(container)
    return {f.name: getattr(container, f.name) for f in dataclasses.fields(container)}


def _arguments_of(obj: Any, frame: FrameType | None) -> dict[str, Any] | None:
    found = init_args_of(obj, frame)
    if dataclasses.is_dataclass(obj):
        # Fields win over the variables of the generated constructor, which may hold marks for default factories.
        fields = [f.name for f in dataclasses.fields(obj) if f.init and hasattr(obj, f.name)]
        found = {**(found or {}), **{name: getattr(obj, name) for name in fields}}
    return found


def _choose(args: tuple[Any, ...], known: dict[str, Any] | None, where: str) -> tuple[Any, str | None]:
    """Return what to store, and under which name the constructor got it (``"kwargs"``: as single arguments)."""
    if not args:
        if known is None:
            warn(
                "W051",
                f"{where}() found no constructor to take arguments from, nothing was stored. Call it in `__init__`,"
                f" or give it the values: `save_hyperparameters({{'lr': lr}})`.",
                key=where,
                stacklevel=3,
            )
        return known or {}, "kwargs" if known else None
    if all(isinstance(arg, str) for arg in args):
        return _pick(args, known, where), "kwargs"
    if len(args) > 1:
        shown = ", ".join(repr(arg) if isinstance(arg, str) else type(arg).__name__ for arg in args)
        raise ArgumentValueError(
            f"{where}({shown}): give names of arguments as strings, as in `save_hyperparameters('lr', 'width')`, or"
            f" exactly one object that holds the values: {_ACCEPTED}."
        )
    return args[0], next((name for name, value in (known or {}).items() if _holds(value, args[0])), None)


def _pick(names: tuple[str, ...], known: dict[str, Any] | None, where: str) -> dict[str, Any]:
    for name in names:
        if known is None:
            raise ArgumentValueError(
                f"{where}({name!r}): no constructor of the object is running, so there is no argument of this name."
                f" Call it in `__init__`, or give the values: `save_hyperparameters({{{name!r}: ...}})`."
            )
        if name not in known:
            raise ArgumentValueError(
                f"{where}({name!r}): the constructor has no argument of this name (or it is ignored)."
                f"{suggest(name, known)} Its arguments are: {', '.join(known) or 'none'}."
            )
    return {name: (known or {})[name] for name in names}


def _holds(value: Any, container: Any) -> bool:
    """Whether the argument `value` is what was given to `save_hyperparameters`, or holds the same values."""
    if value is container or getattr(value, "__dict__", None) is container:  # `vars(args)` of an argument `args`
        return True
    return type(value) is type(container) and same_value(value, container)


def _warn_of_modules(hparams: Mapping[str, Any], owner: str) -> None:
    if not isinstance(hparams, dict):  # OmegaConf holds no modules, and reading it may raise for missing values
        return
    for name, value in hparams.items():
        if isinstance(value, nn.Module):
            warn(
                "W052",
                f"Hyperparameter {name!r} of {owner} is an `nn.Module` ({type(value).__name__}): its weights are in"
                f" the checkpoint already, and reading it back needs unpickling. Leave it out with"
                f" `self.save_hyperparameters(ignore=[{name!r}])` and give it to `load_from_checkpoint({name}=...)`.",
                key=f"{owner}.{name}",
                stacklevel=3,
            )


def copy_hparams(hparams: Any) -> Any:
    """Return a deep copy; modules, and values that cannot be copied, are taken over as they are.

    Args:
        hparams: A mapping of hyperparameters.
    """
    # A module may be large and is stored in the checkpoint by its weights: `deepcopy` finds it in its memo as done.
    memo = {id(v): v for v in hparams.values() if isinstance(v, nn.Module)} if isinstance(hparams, dict) else {}
    try:
        return copy.deepcopy(hparams, memo)
    except Exception:  # locks, generators, tensors inside a graph, user code: each raises what it likes
        result = AttributeDict()
        for key, value in hparams.items():
            try:
                result[key] = copy.deepcopy(value, memo)
            except Exception:
                result[key] = value
        return result


def same_value(left: Any, right: Any) -> bool:
    """Return whether two hyperparameters are of one type and equal, whatever their ``==`` returns.

    Args:
        left: A value.
        right: Another one.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        return left.shape == right.shape and left.dtype == right.dtype and bool((left == right).all())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_value(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    try:
        equal = left == right
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:  # user code
        return False


def merge_hparams(module: HyperparametersMixin, datamodule: HyperparametersMixin | None) -> dict[str, Any] | None:
    """Return the initial hyperparameters that loggers get at the start of a run.

    Args:
        module: The module.
        datamodule: The data module, if there is one.

    Returns:
        The values of both as far as they were saved with ``logger=True``; `None` if none of them were.

    Raises:
        HparamsConflictError: Both have a value of one name and the values differ.
    """
    sources = [o for o in (module, datamodule) if o is not None and vars(o).get("_log_hyperparams", False)]
    if not sources:
        return None
    parts = [{k: v for k, v in source.hparams_initial.items() if k not in INTERNAL_KEYS} for source in sources]
    if len(parts) == 2:
        first, second = parts
        conflicts = [key for key in first if key in second and not same_value(first[key], second[key])]
        if conflicts:
            names = [type(source).__name__ for source in sources]
            shown = "; ".join(
                f"{key!r}: {first[key]!r} in {names[0]}, {second[key]!r} in {names[1]}" for key in conflicts
            )
            raise HparamsConflictError(
                f"{names[0]} and {names[1]} save different values of the same hyperparameters: {shown}. Rename one,"
                f" leave it out with `save_hyperparameters(ignore={conflicts!r})`, or save one side with"
                f" `logger=False`."
            )
    return {key: value for part in parts for key, value in part.items()}


def hparams_entries(obj: HyperparametersMixin) -> dict[str, Any]:
    """Return the entries that a checkpoint gets for the hyperparameters of a module or data module.

    Args:
        obj: A module or data module; its class says under which keys.

    Returns:
        Nothing if there are no hyperparameters; else the values, the name under which the constructor got them, and
        for OmegaConf containers the dotted name of their type.
    """
    hparams = obj.hparams
    if not hparams:
        return {}
    keys: Any = obj  # its class defines CHECKPOINT_HYPER_PARAMS_*
    entries: dict[str, Any] = {}
    if "_hparams_name" in vars(obj):
        entries[keys.CHECKPOINT_HYPER_PARAMS_NAME] = vars(obj)["_hparams_name"]
    if isinstance(hparams, dict):
        entries[keys.CHECKPOINT_HYPER_PARAMS_KEY] = dict(hparams)
    else:
        entries[keys.CHECKPOINT_HYPER_PARAMS_KEY] = hparams
        entries[keys.CHECKPOINT_HYPER_PARAMS_TYPE] = f"{type(hparams).__module__}.{type(hparams).__qualname__}"
    return entries
