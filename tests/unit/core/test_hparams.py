"""What `save_hyperparameters` stores, in all its forms, and what loggers and checkpoints get of it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import threading
import warnings
from argparse import Namespace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fulmen.core.datamodule import LightningDataModule
from fulmen.core.hparams import (
    HparamsConflictError,
    HyperparametersMixin,
    copy_hparams,
    given_hyperparameters,
    hparams_entries,
    merge_hparams,
    same_value,
)
from fulmen.core.mixins import HyperparametersMixin as MixinOfMixins
from fulmen.core.module import LightningModule
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning
from fulmen.utilities.parsing import (
    AttributeDict,
    clean_namespace,
    collect_init_args,
    get_init_args,
    is_picklable,
    parse_class_init_keys,
    save_hyperparameters,
)

try:
    import omegaconf
except ImportError:
    omegaconf = None

needs_omegaconf = pytest.mark.skipif(omegaconf is None, reason="omegaconf is not installed")
pytestmark = pytest.mark.feature("M-06")


class Base(HyperparametersMixin, nn.Module):
    """Stand-in: a module with hyperparameters and nothing else."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


BASES = pytest.mark.parametrize("base", [Base, LightningModule, LightningDataModule])


# ------------------------------------------------------------------------------------------------------------- forms


@BASES
def test_all_arguments(base: type) -> None:
    class Model(base):
        def __init__(self, a, b=2, *rest, c, d=4, **more):
            super().__init__()
            self.save_hyperparameters()

    model = Model(1, 20, 30, c=3, e=5)
    assert dict(model.hparams) == {"a": 1, "b": 20, "c": 3, "d": 4, "e": 5}
    assert model.hparams.e == 5
    assert vars(model)["_hparams_name"] == "kwargs"


@BASES
def test_named_arguments(base: type) -> None:
    class Model(base):
        def __init__(self, a, b, c):
            super().__init__()
            self.save_hyperparameters("a", "c")

    assert dict(Model(1, 2, 3).hparams) == {"a": 1, "c": 3}


@pytest.mark.parametrize("ignore", ["b", ["b"], ("b", "nobody"), {"b"}])
def test_ignore(ignore: Any) -> None:
    class Model(Base):
        def __init__(self, a, b):
            super().__init__()
            self.save_hyperparameters(ignore=ignore)

    assert dict(Model(1, 2).hparams) == {"a": 1}


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    width: int = 8


@pytest.mark.parametrize(
    "container",
    [
        {"lr": 0.1, "width": 8},
        MappingProxyType({"lr": 0.1, "width": 8}),
        Namespace(lr=0.1, width=8),
        SimpleNamespace(lr=0.1, width=8),
        Config(),
        AttributeDict(lr=0.1, width=8),
        *([omegaconf.OmegaConf.create({"lr": 0.1, "width": 8})] if omegaconf else []),
    ],
    ids=lambda c: type(c).__name__,
)
def test_object_that_holds_the_values(container: Any) -> None:
    class Model(Base):
        def __init__(self, cfg, other=1):
            super().__init__()
            self.save_hyperparameters(cfg)

    model = Model(container)
    assert dict(model.hparams) == {"lr": 0.1, "width": 8}
    assert model.hparams.lr == 0.1
    assert vars(model)["_hparams_name"] == "cfg"
    model.hparams["lr"] = 1.0
    assert model.hparams_initial["lr"] == 0.1


def test_vars_of_a_namespace_is_recognised_as_its_argument() -> None:
    class Model(Base):
        def __init__(self, args):
            super().__init__()
            self.save_hyperparameters(vars(args))

    assert vars(Model(Namespace(a=1)))["_hparams_name"] == "args"


def test_object_that_is_no_argument_has_no_name() -> None:
    class Model(Base):
        def __init__(self, a, array):
            super().__init__()
            self.save_hyperparameters({"twice": 2 * a, "array": array})

    model = Model(2, np.arange(3))
    assert vars(model)["_hparams_name"] is None
    assert set(model.hparams) == {"twice", "array"}


@pytest.mark.parametrize("empty", [{}, None, Namespace()])
def test_empty_object_stores_nothing(empty: Any) -> None:
    class Model(Base):
        def __init__(self, cfg):
            super().__init__()
            self.save_hyperparameters(cfg)

    assert dict(Model(empty).hparams) == {}


@dataclasses.dataclass(eq=False)
class DataclassModule(Base):
    width: int = 3
    names: list[str] = dataclasses.field(default_factory=lambda: ["x"])
    hidden: int = dataclasses.field(default=7, init=False)

    def __post_init__(self):
        super().__init__()
        self.save_hyperparameters()


def test_module_that_is_a_dataclass() -> None:
    model = DataclassModule(width=5)
    assert dict(model.hparams) == {"width": 5, "names": ["x"]}


# ------------------------------------------------------------------------------------------- inheritance and the stack


def test_inheritance_keeps_arguments_of_all_constructors() -> None:
    class Parent(Base):
        def __init__(self, width, shared):
            super().__init__()
            self.save_hyperparameters()

    class Child(Parent):
        def __init__(self, size, shared):
            super().__init__(width=2 * size, shared=shared + 1)

    # The value of the derived class is the one to build the object from.
    assert dict(Child(3, 10).hparams) == {"width": 6, "size": 3, "shared": 10}


def test_subclass_ignores_what_its_parent_stored() -> None:
    class Parent(Base):
        def __init__(self, **kwargs):
            super().__init__()
            self.save_hyperparameters()

    class Child(Parent):
        def __init__(self, lr, net):
            super().__init__(lr=lr, net=net)
            self.save_hyperparameters(ignore="net")

    assert dict(Child(0.1, "net").hparams) == {"lr": 0.1}


def test_mixins_between() -> None:
    class Extra:
        def __init__(self, extra, **kwargs):
            super().__init__(**kwargs)
            self.extra = extra

    class Model(Extra, Base):
        def __init__(self, a, **kwargs):
            super().__init__(**kwargs)
            self.save_hyperparameters()

    assert dict(Model(1, extra=2).hparams) == {"a": 1, "extra": 2}


def test_called_without_super() -> None:
    class Model(HyperparametersMixin):
        def __init__(self, a):
            self.save_hyperparameters()

    assert dict(Model(1).hparams) == {"a": 1}


def test_called_from_a_nested_function_and_a_method() -> None:
    class Model(Base):
        def __init__(self, a, b):
            super().__init__()

            def save():
                self._save()

            save()

        def _save(self):
            self.save_hyperparameters("b")

    assert dict(Model(1, 2).hparams) == {"b": 2}


def test_constructor_behind_a_decorator() -> None:
    def checked(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    class Parent(Base):
        @checked
        def __init__(self, a):
            super().__init__()
            self.save_hyperparameters()

    class Child(Parent):
        @checked
        def __init__(self, a, b):
            super().__init__(a)

    assert dict(Child(1, 2).hparams) == {"a": 1, "b": 2}


def test_module_built_inside_of_another_does_not_take_its_arguments() -> None:
    class Inner(Base):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()

    class Outer(Base):
        def __init__(self, depth):
            super().__init__()
            self.inner = Inner(4)
            self.save_hyperparameters()

    model = Outer(2)
    assert dict(model.inner.hparams) == {"width": 4}
    assert dict(model.hparams) == {"depth": 2}


def test_given_frame() -> None:
    class Model(Base):
        def __init__(self, a):
            super().__init__()
            helper(self, inspect.currentframe())

    def helper(model, frame):
        model.save_hyperparameters(frame=frame)

    assert dict(Model(1).hparams) == {"a": 1}


def test_other_name_of_self_and_deleted_argument() -> None:
    class Model(Base):
        def __init__(this, a, b):  # noqa: N805  # the point of the test
            super().__init__()
            del a
            this.save_hyperparameters()

    assert dict(Model(1, 2).hparams) == {"b": 2}


def test_outside_of_a_constructor() -> None:
    model = Base()
    with pytest.warns(FulmenWarning, match=r"found no constructor.*FULMEN-W051") as caught:
        model.save_hyperparameters()
    assert caught[0].filename == __file__  # it points at the caller
    model.save_hyperparameters({"a": 1})
    assert dict(model.hparams) == {"a": 1}


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        (("lerning_rate",), {}, ArgumentValueError, "Did you mean 'learning_rate'"),
        (("learning_rate", "nothing"), {}, ArgumentValueError, r"'nothing'.*Its arguments are: learning_rate, cfg"),
        ((0.1,), {}, ArgumentValueError, "float is not accepted. Give names"),
        ((0,), {}, ArgumentValueError, "int is not accepted"),
        (([1, 2],), {}, ArgumentValueError, "list is not accepted"),
        ((nn.ReLU(),), {}, ArgumentValueError, "ReLU is not accepted"),
        ((Config,), {}, ArgumentValueError, "type is not accepted"),
        (("cfg", {"a": 1}), {}, ArgumentValueError, r"\('cfg', dict\): give names"),
        ((0.1, 8), {}, ArgumentValueError, "give names of arguments as strings"),
        ((), {"ignore": 3}, ArgumentTypeError, r"ignore=3.*list of names"),
        ((), {"ignore": ["cfg", 3]}, ArgumentTypeError, r"ignore=\['cfg', 3\]"),
        ((), {"frame": "here"}, ArgumentTypeError, r"frame='here'.*currentframe"),
        (("cfg",), {"ignore": "cfg"}, ArgumentValueError, "or it is ignored"),
    ],
)
def test_bad_arguments(args: Any, kwargs: Any, error: type, words: str) -> None:
    class Model(Base):
        def __init__(self, learning_rate, cfg):
            super().__init__()
            self.save_hyperparameters(*args, **kwargs)

    with pytest.raises(error, match=words):
        Model(0.1, {})


def test_name_outside_of_a_constructor() -> None:
    with pytest.raises(ArgumentValueError, match="no constructor of the object is running"):
        Base().save_hyperparameters("a")


# --------------------------------------------------------------------------------------------------- live and initial


@BASES
def test_hparams_are_live_and_initial_ones_are_a_copy(base: type) -> None:
    class Model(base):
        def __init__(self, sizes):
            super().__init__()
            self.save_hyperparameters()

    model = Model([1, 2])
    model.hparams.sizes.append(3)
    model.hparams.new = 1
    assert model.hparams_initial == {"sizes": [1, 2]}
    model.hparams_initial["sizes"].append(4)
    assert model.hparams_initial == {"sizes": [1, 2]}
    assert dict(model.hparams) == {"sizes": [1, 2, 3], "new": 1}


def test_nothing_saved() -> None:
    assert Base().hparams == {}
    assert Base().hparams_initial == {}
    assert hparams_entries(LightningModule()) == {}
    assert Base().hparams is not Base().hparams


def test_module_argument_gets_a_hint_once_and_is_not_copied() -> None:
    class Model(Base):
        def __init__(self, net, lr):
            super().__init__()
            self.save_hyperparameters()

    net = nn.Linear(2, 2)
    with pytest.warns(FulmenWarning, match=r"'net' of Model is an `nn.Module` \(Linear\).*ignore=\['net'\]") as caught:
        model = Model(net, 0.1)
    assert caught[0].filename == __file__
    assert model.hparams_initial["net"] is net
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Model(net, 0.2)


def test_value_that_cannot_be_copied_does_not_stop_the_others() -> None:
    class Model(Base):
        def __init__(self, lock, sizes):
            super().__init__()
            self.save_hyperparameters()

    lock = threading.Lock()
    model = Model(lock, [1])
    model.hparams.sizes.append(2)
    assert model.hparams_initial["lock"] is lock
    assert model.hparams_initial["sizes"] == [1]


def test_copy_keeps_shared_objects_shared() -> None:
    one = [1]
    copied = copy_hparams(AttributeDict(a=one, b=one))
    assert copied.a is copied.b
    assert copied.a is not one


@BASES
def test_pickle_and_deepcopy(base: type) -> None:
    model = base()
    model.save_hyperparameters({"a": [1]})
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again.hparams == {"a": [1]}
        assert type(again.hparams) is AttributeDict
        again.hparams.a.append(2)
    assert model.hparams == {"a": [1]}


def test_logger_flag_does_not_need_a_constructor_that_reaches_the_mixin() -> None:
    class Model(Base):
        def __init__(self, a, logger):
            self.save_hyperparameters(logger=logger)
            super().__init__()

    assert vars(Model(1, True))["_log_hyperparams"] is True
    assert vars(Model(1, False))["_log_hyperparams"] is False
    assert Base._log_hyperparams is False


@needs_omegaconf
def test_other_mutable_mappings_stay_what_they_are() -> None:
    model = LightningModule()
    model.save_hyperparameters(omegaconf.OmegaConf.create({"a": {"b": 1}, "c": "${a.b}"}))
    assert isinstance(model.hparams, omegaconf.DictConfig)
    assert model.hparams.c == 1
    entries = hparams_entries(model)
    assert entries["hparams_type"] == "omegaconf.dictconfig.DictConfig"
    assert entries["hyper_parameters"] == {"a": {"b": 1}, "c": 1}


@needs_omegaconf
def test_missing_omegaconf_values_are_not_read() -> None:
    model = Base()
    model.save_hyperparameters(omegaconf.OmegaConf.create({"a": "???"}))
    assert omegaconf.OmegaConf.is_missing(model.hparams, "a")


# ------------------------------------------------------------------------------------------- checkpoints, loggers, CLI


def test_entries_of_a_checkpoint() -> None:
    class Model(LightningModule):
        def __init__(self, a):
            super().__init__()
            self.save_hyperparameters()

    class Data(LightningDataModule):
        def __init__(self, cfg):
            super().__init__()
            self.save_hyperparameters(cfg)

    assert hparams_entries(Model(1)) == {"hyper_parameters": {"a": 1}, "hparams_name": "kwargs"}
    assert hparams_entries(Data({"b": 2})) == {
        "datamodule_hyper_parameters": {"b": 2},
        "datamodule_hparams_name": "cfg",
    }
    assert type(hparams_entries(Model(1))["hyper_parameters"]) is dict


def _with(values: dict[str, Any] | None, logger: bool = True, name: str = "Model") -> Any:
    obj = type(name, (Base,), {})()
    if values is not None:
        obj.save_hyperparameters(values, logger=logger)
    return obj


@pytest.mark.parametrize(
    ("module", "data", "expected"),
    [
        (_with(None), None, None),
        (_with(None), _with(None), None),
        (_with({"a": 1}), None, {"a": 1}),
        (_with(None), _with({"a": 1}), {"a": 1}),
        (_with({"a": 1}, logger=False), _with({"a": 2}), {"a": 2}),
        (_with({"a": 1}), _with({"a": 2}, logger=False), {"a": 1}),
        (_with({"a": 1, "b": 2}), _with({"b": 2, "c": 3}), {"a": 1, "b": 2, "c": 3}),
        (_with({"a": 1, "_class_path": "x"}), _with({"_class_path": "y"}), {"a": 1}),
    ],
)
def test_merge(module: Any, data: Any, expected: Any) -> None:
    assert merge_hparams(module, data) == expected


def test_merge_conflict_names_both() -> None:
    module, data = _with({"a": 1, "bs": 2}, name="Net"), _with({"a": 1, "bs": 4}, name="Data")
    with pytest.raises(HparamsConflictError, match=r"Net and Data save different.*'bs': 2 in Net, 4 in Data") as info:
        merge_hparams(module, data)
    assert isinstance(info.value, RuntimeError)
    assert "'a'" not in str(info.value)


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]  # not needed


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(3), False),
        (np.arange(2), np.arange(2), True),
        (np.arange(2), np.arange(1, 3), False),
        ({"a": torch.ones(2)}, {"a": torch.ones(2)}, True),
        ([np.arange(2), 1], [np.arange(2), 2], False),
        ((1, 2), (1, 2, 3), False),
        (Odd(), Odd(), False),
    ],
)
def test_same_value(left: Any, right: Any, same: bool) -> None:
    assert same_value(left, right) is same


def test_given_hyperparameters_replace_arguments() -> None:
    class Inner(Base):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()

    class Outer(Base):
        def __init__(self, inner, lr):
            super().__init__()
            self.other = Inner(1)
            self.save_hyperparameters(ignore="lr")

    with given_hyperparameters({"inner": {"class_path": "x"}, "lr": 1}, "some.function", owner=Outer):
        model = Outer(Inner(2), 1)
    assert dict(model.hparams) == {"inner": {"class_path": "x"}, "_instantiator": "some.function"}
    assert dict(model.other.hparams) == {"width": 1}
    assert dict(Inner(3).hparams) == {"width": 3}
    with given_hyperparameters({"width": "w"}, "f"):
        assert Inner(3).hparams.width == "w"


# -------------------------------------------------------------------------------------------------- utilities.parsing


def test_one_mixin_under_two_names() -> None:
    assert MixinOfMixins is HyperparametersMixin


def test_attribute_dict() -> None:
    values = AttributeDict({"key1": 1, "key2": "abc"})
    values.update({"my-key": 3.14})
    values.new_key = 42
    assert values["new_key"] == values.new_key == 42
    assert repr(values) == '"key1":    1\n"key2":    abc\n"my-key":  3.14\n"new_key": 42'
    assert repr(AttributeDict()) == ""
    assert "key1" in dir(values)
    del values.key1
    assert not hasattr(values, "key1")
    for again in (copy.copy(values), copy.deepcopy(values), pickle.loads(pickle.dumps(values))):
        assert type(again) is AttributeDict
        assert again == values
    for error in (AttributeError, KeyError):
        with pytest.raises(error, match=r"no attribute 'key3'\. Did you mean 'key2'"):
            _ = values.key3
        with pytest.raises(error, match="no attribute 'nothing'"):
            del values.nothing


def test_get_init_args() -> None:
    class Parent:
        def __init__(self, a, *rest, b=2, **more):
            self.seen = get_init_args(inspect.currentframe())

    class Child(Parent):
        def __init__(self, a, z):
            super().__init__(a, 9, c=3)

    assert Parent(1).seen == {"a": 1, "b": 2}
    assert Child(1, 5).seen == {"a": 1, "b": 2, "c": 3}
    assert get_init_args(inspect.currentframe()) == {}


def test_collect_init_args() -> None:
    class Parent:
        def __init__(self, a):
            self.seen = collect_init_args(inspect.currentframe(), [])
            self.of_others = collect_init_args(inspect.currentframe(), [], classes=(nn.Module,))

    class Child(Parent):
        def __init__(self, b):
            super().__init__(b + 1)

    assert Child(1).seen == [{"a": 2}, {"b": 1}]
    assert Child(1).of_others == []


def test_parse_class_init_keys() -> None:
    class Model:
        def __init__(this, hparams, *my_args, anykw=42, **my_kwargs): ...  # noqa: N805  # the point of the test

    class Plain:
        def __init__(self, a): ...

    assert parse_class_init_keys(Model) == ("this", "my_args", "my_kwargs")
    assert parse_class_init_keys(Plain) == ("self", None, None)


def test_function_form() -> None:
    class Model(Base):
        def __init__(self, a, b):
            super().__init__()
            save_hyperparameters(self, "a")

    assert dict(Model(1, 2).hparams) == {"a": 1}


def test_picklable_and_clean_namespace() -> None:
    values = {"a": 1, "f": lambda: 0, "lock": threading.Lock()}
    assert is_picklable([1])
    assert not is_picklable(values["f"])
    with pytest.warns(FulmenWarning) as caught:
        clean_namespace(values)
    assert values == {"a": 1}
    assert [str(w.message).split(" ")[1] for w in caught] == ["'f'", "'lock'"]
