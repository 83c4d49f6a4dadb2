"""`load_from_checkpoint`: which values the constructor gets, which weights the module, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
import io
import typing
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from fulmen.core.constructor import Request, build
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.hparams import hparams_entries
from fulmen.core.hparams_files import read_hparams_file
from fulmen.core.module import LightningModule
from fulmen.core.saving import (
    StateDictMismatchError,
    convert,
    load_hparams_from_tags_csv,
    load_hparams_from_yaml,
    load_module,
    register_instantiator,
    save_hparams_to_tags_csv,
    save_hparams_to_yaml,
    update_hparams,
)
from fulmen.engine.storage import safe_types
from fulmen.engine.storage.format import encode
from fulmen.engine.storage.writer import write_atomic
from fulmen.errors import ArgumentTypeError, ArgumentValueError, CheckpointError, FulmenWarning, UnsafeCheckpointError
from fulmen.utilities.parsing import AttributeDict

pytestmark = pytest.mark.feature("M-07")


class Net(LightningModule):
    def __init__(self, width: int, depth: int = 1, name: str = "net") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
        self.seen: list[Any] = []

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen.append(checkpoint)


class Data(LightningDataModule):
    def __init__(self, folder: Path, batch_size: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.position = state_dict["position"]


def save(path: Path, *parts: Any, **more: Any) -> Path:
    """Write what a trainer would write of these objects."""
    checkpoint: dict[str, Any] = {"epoch": 3}
    for part in parts:
        checkpoint.update(hparams_entries(part))
        if isinstance(part, nn.Module):
            checkpoint["state_dict"] = part.state_dict()
        elif part.state_dict():
            checkpoint[type(part).__qualname__] = part.state_dict()
    checkpoint.update(more)
    write_atomic(encode(checkpoint), path)
    return path


@pytest.fixture
def net() -> Net:
    return Net(2, depth=2, name="stored")


@pytest.fixture
def file(tmp_path: Path, net: Net) -> Path:
    return save(tmp_path / "net.ckpt", net)


# ---------------------------------------------------------------------------------------------------------- precedence


def test_stored_values_and_weights(file: Path, net: Net) -> None:
    loaded = Net.load_from_checkpoint(file)
    assert dict(loaded.hparams) == {"width": 2, "depth": 2, "name": "stored"}
    for key, value in net.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)
    assert loaded.seen[0]["epoch"] == 3


@pytest.mark.parametrize("kind", [str, Path, "file_url", "memory_url", "bytes", "open"])
def test_kinds_of_paths(file: Path, kind: Any) -> None:
    source: Any
    if kind == "file_url":
        source = f"file://{file}"
    elif kind == "memory_url":
        source = "memory://folder/net.ckpt"
        write_atomic(file.read_bytes(), source)
    elif kind == "open":
        with file.open("rb") as source:
            assert Net.load_from_checkpoint(source).hparams.name == "stored"
        return
    elif kind == "bytes":
        source = io.BytesIO(file.read_bytes())
    else:
        source = kind(file)
    assert Net.load_from_checkpoint(source).hparams.name == "stored"


def test_overrides_win(file: Path) -> None:
    loaded = Net.load_from_checkpoint(file, name="given")
    assert dict(loaded.hparams) == {"width": 2, "depth": 2, "name": "given"}
    assert loaded.seen[0]["hyper_parameters"]["name"] == "given"


def test_defaults_fill_what_is_not_stored(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", Net(2), hyper_parameters={"width": 2})
    assert Net.load_from_checkpoint(path).hparams.name == "net"


def test_stored_values_that_the_constructor_does_not_know_are_passed_over(tmp_path: Path) -> None:
    net = Net(2)
    net.hparams.added_later = 1
    assert Net.load_from_checkpoint(save(tmp_path / "a.ckpt", net)).hparams.width == 2


def test_kwargs_constructor_gets_everything(tmp_path: Path) -> None:
    class Open(LightningModule):
        def __init__(self, a, **kwargs):
            super().__init__()
            self.save_hyperparameters()

    path = save(tmp_path / "a.ckpt", Open(1, b=2), state_dict={})
    with pytest.warns(FulmenWarning, match=r"has no weights.*FULMEN-W054") as caught:
        loaded = Open.load_from_checkpoint(path, c=3)
    assert dict(loaded.hparams) == {"a": 1, "b": 2, "c": 3}
    assert caught[0].filename == __file__


def test_positional_only_and_keyword_only(tmp_path: Path) -> None:
    class Model(LightningModule):
        def __init__(self, a, b=2, /, *rest, c):
            super().__init__()
            self.save_hyperparameters()
            self.layer = nn.Linear(1, 1)

    loaded = Model.load_from_checkpoint(save(tmp_path / "a.ckpt", Model(1, 5, c=3)), c=4)
    assert dict(loaded.hparams) == {"a": 1, "b": 5, "c": 4}


def test_early_keys(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.ckpt",
        state_dict=Net(2).state_dict(),
        hparams={"width": 9, "name": "oldest"},
        module_arguments={"width": 2},
    )
    assert dict(Net.load_from_checkpoint(path).hparams) == {"width": 2, "depth": 1, "name": "oldest"}


@pytest.mark.parametrize("kind", ["yaml", "yml", "csv"])
def test_hparams_file_replaces_stored_values(file: Path, tmp_path: Path, kind: str) -> None:
    values = {"width": 2, "depth": 2, "name": "from file"}
    where = tmp_path / f"hparams.{kind}"
    (save_hparams_to_tags_csv if kind == "csv" else save_hparams_to_yaml)(where, values)
    assert dict(Net.load_from_checkpoint(file, hparams_file=where).hparams) == values
    assert Net.load_from_checkpoint(file, hparams_file=str(where), name="given").hparams.name == "given"


# --------------------------------------------------------------------------------------- values kept in one argument


@dataclasses.dataclass
class Config:
    width: int = 1
    label: str = "x"


class FromDict(LightningModule):
    def __init__(self, cfg, extra=None):
        super().__init__()
        self.save_hyperparameters(cfg)
        self.cfg = cfg
        self.extra = extra
        self.layer = nn.Linear(self.hparams.width, 1)


class FromNamespace(FromDict):
    def __init__(self, cfg: Namespace):
        super().__init__(cfg)


class FromDataclass(FromDict):
    def __init__(self, cfg: typing.Optional[Config] = None):  # noqa: UP045  # as in older code
        super().__init__(cfg)


@pytest.mark.parametrize(
    ("cls", "cfg", "kind"),
    [
        (FromDict, {"width": 3}, AttributeDict),
        (FromDict, Namespace(width=3), AttributeDict),
        (FromNamespace, Namespace(width=3), Namespace),
        (FromDataclass, Config(3, "y"), Config),
    ],
)
def test_container(tmp_path: Path, cls: Any, cfg: Any, kind: type) -> None:
    path = save(tmp_path / "a.ckpt", cls(cfg))
    loaded = cls.load_from_checkpoint(path)
    assert type(loaded.cfg) is kind
    assert dict(loaded.hparams) == dict(cls(cfg).hparams)
    assert loaded.cfg.width == 3
    # What is no argument of its own belongs into the container; an argument of its own does not.
    assert cls.load_from_checkpoint(path, label="z").hparams.get("label") == "z"


def test_container_and_arguments(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", FromDict({"width": 3}))
    loaded = FromDict.load_from_checkpoint(path, extra=5)
    assert loaded.extra == 5
    assert dict(loaded.hparams) == {"width": 3}
    assert FromDict.load_from_checkpoint(path, cfg={"width": 3, "b": 1}).hparams.b == 1


def test_omegaconf(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    cfg = omegaconf.OmegaConf.create({"width": 3, "twice": "${width}"})
    path = save(tmp_path / "a.ckpt", FromDict(cfg))
    loaded = FromDict.load_from_checkpoint(path, label="z")
    assert isinstance(loaded.cfg, omegaconf.DictConfig)
    assert loaded.hparams.twice == 3
    assert loaded.hparams.label == "z"


# ------------------------------------------------------------------------------------------------------ bad arguments


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        (
            {"widht": 3},
            ArgumentTypeError,
            (
                r"Net.load_from_checkpoint\('.*net.ckpt'\): 'widht' is no argument of Net. Did you mean 'width'\?"
                r" Its arguments: width, depth, name. Stored hyperparameters: width, depth, name"
            ),
        ),
        ({"hparams_file": "a.json"}, ArgumentValueError, r"a\.json.*\.yaml, \.yml or \.csv"),
        ({"hparams_file": "nowhere.yaml"}, FileNotFoundError, "nowhere.yaml"),
        ({"strict": "yes"}, ArgumentTypeError, "strict='yes'; give True, False or None"),
    ],
)
def test_refused(file: Path, kwargs: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        Net.load_from_checkpoint(file, **kwargs)


def test_missing_argument(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", state_dict={}, hyper_parameters={"widht": 2, "depth": 1})
    with pytest.raises(ArgumentTypeError, match=r"no value for 'width' of Net. Did you mean 'widht'") as info:
        Net.load_from_checkpoint(path)
    assert "Its arguments: width, depth, name. Stored hyperparameters: widht, depth." in str(info.value)
    assert "load_from_checkpoint(path, width=...)" in str(info.value)


def test_error_in_the_constructor_keeps_its_type_and_gets_a_note(file: Path) -> None:
    with pytest.raises(TypeError) as info:
        Net.load_from_checkpoint(file, depth="two")
    assert "Net was being built with the arguments: width, depth, name" in info.value.__notes__[0]


def test_refuses_to_be_called_on_an_instance(file: Path, net: Net) -> None:
    with pytest.raises(TypeError, match=r"`Net.load_from_checkpoint` was called on an instance.*Call it on the class"):
        net.load_from_checkpoint(file)
    with pytest.raises(TypeError, match=r"`Data.load_from_checkpoint` was called on an instance"):
        Data(Path()).load_from_checkpoint(file)


def test_subclass_may_extend_the_class_method(file: Path) -> None:
    class More(Net):
        @classmethod
        def load_from_checkpoint(cls, *args, **kwargs):
            obj = super().load_from_checkpoint(*args, **kwargs)
            obj.extended = True
            return obj

    assert type(More.load_from_checkpoint(file)) is More
    assert More.load_from_checkpoint(file).extended


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1], "the file holds a list, not a checkpoint"),
        ({"a": torch.ones(1)}, r"no entry 'state_dict'; it has: a\..*bare state dict"),
        ({"epoch": 1}, r"no entry 'state_dict'; it has: epoch\.$"),
        ({}, "it has: none"),
        ({"state_dict": {}, "hyper_parameters": [1]}, "the entry 'hyper_parameters' is a list"),
    ],
)
def test_not_a_checkpoint(content: Any, words: str) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(0)
    with pytest.raises(CheckpointError, match=words):
        load_module(LightningModule, buffer)


def test_not_a_path_and_not_a_class() -> None:
    with pytest.raises(ArgumentTypeError, match=r"load_from_checkpoint\(<int>\): give a path"):
        Net.load_from_checkpoint(3)
    with pytest.raises(ArgumentTypeError, match="give a class"):
        load_module(Net(1), "a.ckpt")  # type: ignore[arg-type]  # the point of the test


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.ckpt"):
        Net.load_from_checkpoint(tmp_path / "nothing.ckpt")


# ------------------------------------------------------------------------------------------------------------- weights


def test_mismatch_is_listed_briefly(file: Path) -> None:
    with pytest.raises(StateDictMismatchError) as info:
        Net.load_from_checkpoint(file, width=3, depth=1)
    assert str(info.value) == (
        f"Net.load_from_checkpoint({str(file)!r}): the checkpoint does not fit Net: unexpected: layers.1.weight,"
        " layers.1.bias; other shapes: layers.0.weight (2, 2) in the checkpoint, (3, 3) in the module, layers.0.bias"
        " (2,) in the checkpoint, (3,) in the module."
    )
    assert isinstance(info.value, RuntimeError)
    with pytest.raises(StateDictMismatchError, match=r"missing: layers\.2\.weight.* and 7 more\. Load what fits"):
        Net.load_from_checkpoint(file, depth=8)


def test_strict_false_names_what_was_passed_over(file: Path, net: Net) -> None:
    with pytest.warns(FulmenWarning, match=r"missing keys layers\.2\.weight, layers\.2\.bias were") as caught:
        loaded = Net.load_from_checkpoint(file, depth=3, strict=False)
    assert torch.equal(loaded.layers[0].weight, net.layers[0].weight)
    assert caught[0].filename == __file__  # it points at the caller
    with pytest.warns(FulmenWarning, match=r"strict=False: unexpected keys layers\.1\.weight"):
        Net.load_from_checkpoint(file, depth=1, strict=False)


def test_strict_loading_of_the_module(file: Path) -> None:
    class Lax(Net):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.strict_loading = False

    with pytest.warns(FulmenWarning, match="missing keys"):
        Lax.load_from_checkpoint(file, width=2, depth=3)
    with pytest.raises(ArgumentValueError, match=r"strict=True contradicts Lax.strict_loading=False"):
        Lax.load_from_checkpoint(file, width=2, strict=True)


def test_order_of_hooks(tmp_path: Path) -> None:
    calls: list[str] = []

    class Model(LightningModule):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()
            self.layer = None

        def configure_model(self):
            calls.append("configure_model")
            if self.layer is None:
                self.layer = nn.Linear(self.hparams.width, 1)

        def on_load_checkpoint(self, checkpoint):
            calls.append("on_load_checkpoint")
            checkpoint["state_dict"] = {"layer." + k: v for k, v in checkpoint["state_dict"].items()}

        def load_state_dict(self, *args, **kwargs):
            calls.append("load_state_dict")
            return super().load_state_dict(*args, **kwargs)

    source = nn.Linear(2, 1)
    path = save(tmp_path / "a.ckpt", Model(2), state_dict=source.state_dict())
    loaded = Model.load_from_checkpoint(path)
    assert calls == ["configure_model", "on_load_checkpoint", "load_state_dict"]
    assert torch.equal(loaded.layer.weight, source.weight)


def test_own_load_state_dict_may_return_nothing_and_raise(file: Path) -> None:
    class Quiet(Net):
        def load_state_dict(self, state_dict, strict=True):
            if not strict:
                raise RuntimeError("my own")

    Quiet.load_from_checkpoint(file, width=2)
    with pytest.raises(RuntimeError, match=r"^my own$"):
        Quiet.load_from_checkpoint(file, width=2, strict=False)


@pytest.mark.feature("M-12")
@pytest.mark.parametrize("stored", ["plain", "compiled"])
def test_keys_of_compiled_layers(tmp_path: Path, stored: str) -> None:
    class Model(LightningModule):
        def __init__(self, compiled):
            super().__init__()
            self.save_hyperparameters()
            layer = nn.Linear(2, 2)
            # What `torch.compile` makes of a layer as far as keys go, without importing dynamo.
            self.layer = nn.ModuleDict({"_orig_mod": layer}) if compiled else layer

    source = Model(stored == "compiled")
    path = save(tmp_path / "a.ckpt", source)
    loaded = Model.load_from_checkpoint(path, compiled=stored == "plain")
    assert [torch.equal(a, b) for a, b in zip(loaded.parameters(), source.parameters(), strict=True)] == [True, True]


def test_map_location(file: Path) -> None:
    seen: list[str] = []

    def to_cpu(storage: Any, location: str) -> Any:
        seen.append(location)
        return storage

    for location in ("cpu", torch.device("cpu"), {"cpu": "cpu"}, to_cpu):
        loaded = Net.load_from_checkpoint(file, map_location=location)
        assert loaded.layers[0].weight.device.type == "cpu"
    assert seen == ["cpu"] * 4


@pytest.mark.parametrize(("location", "kept"), [("cuda:0", torch.cuda.is_available()), ("mps", False), ("cpu", True)])
def test_storage_of_a_device_that_is_not_there_goes_to_the_cpu(location: str, kept: bool) -> None:
    from fulmen.core.saving import _available_location

    class Storage:
        def cpu(self) -> str:
            return "on the cpu"

    if location == "mps" and torch.backends.mps.is_available():
        kept = True
    assert _available_location(Storage(), location) == (None if kept else "on the cpu")


# ------------------------------------------------------------------------------------- values of the user's own types


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclasses.dataclass
class Options:
    mode: Mode
    config: Config


class Typed(LightningModule):
    def __init__(self, options: Options, modes: list[Mode] | None = None, loss: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(1, 1)


class NeedsLoss(LightningModule):
    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(1, 1)


class MyLoss:
    def __init__(self, weight: float) -> None:
        self.weight = weight


@pytest.fixture
def other_process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make files written so far look like those of another process, whose objects are not unpickled unasked."""

    def leave() -> None:
        monkeypatch.setattr(safe_types, "_KEY", b"another process")

    return leave


def test_types_that_the_constructor_names_come_back_in_another_process(tmp_path: Path, other_process: Any) -> None:
    path = save(tmp_path / "a.ckpt", Typed(Options(Mode.SLOW, Config(2)), [Mode.FAST]))
    other_process()
    loaded = Typed.load_from_checkpoint(path)
    assert loaded.hparams.options == Options(Mode.SLOW, Config(2))
    assert loaded.hparams.modes == [Mode.FAST]


def test_objects_of_another_process(tmp_path: Path, other_process: Any) -> None:
    optional = save(tmp_path / "a.ckpt", Typed(Options(Mode.SLOW, Config(2)), loss=MyLoss(2.0)))
    required = save(tmp_path / "b.ckpt", NeedsLoss(MyLoss(2.0)))
    assert NeedsLoss.load_from_checkpoint(required).hparams.loss.weight == 2.0
    other_process()
    with pytest.warns(FulmenWarning, match=r"stored value of 'loss' was not unpickled.*MyLoss.*W056") as caught:
        loaded = Typed.load_from_checkpoint(optional)
    assert loaded.hparams.loss is None
    assert caught[0].filename == __file__
    with pytest.raises(UnsafeCheckpointError, match=r"hyper_parameters\.loss: .*MyLoss"):
        NeedsLoss.load_from_checkpoint(required)
    assert NeedsLoss.load_from_checkpoint(required, loss="given").hparams.loss == "given"
    assert NeedsLoss.load_from_checkpoint(required, weights_only=False).hparams.loss.weight == 2.0
    assert Typed.load_from_checkpoint(optional, weights_only=False).hparams.loss.weight == 2.0


# -------------------------------------------------------------------------------------------------------- data modules


@pytest.mark.feature("D-01")
def test_data_module(tmp_path: Path, net: Net) -> None:
    data = Data(Path("somewhere"), 4)
    data.position = 7
    path = save(tmp_path / "a.ckpt", net, data)
    loaded = Data.load_from_checkpoint(path, batch_size=8)
    assert dict(loaded.hparams) == {"folder": Path("somewhere"), "batch_size": 8}
    assert loaded.position == 7
    assert Net.load_from_checkpoint(path).hparams.width == 2
    with pytest.raises(ArgumentTypeError, match=r"'batchsize' is no argument of Data. Did you mean 'batch_size'"):
        Data.load_from_checkpoint(path, batchsize=8)


def test_data_module_without_state(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", datamodule_hyper_parameters={"folder": "x"})
    assert Data.load_from_checkpoint(path).position == 0


# ------------------------------------------------------------------------------------------- nothing is run unasked


def test_instantiators(tmp_path: Path) -> None:
    own = {"hyper_parameters": {"width": 2, "_instantiator": "os.system"}}
    with pytest.raises(ArgumentValueError, match=r"built by 'os.system', which is not registered"):
        Net.load_from_checkpoint(save(tmp_path / "a.ckpt", Net(2), **own))

    own["hyper_parameters"]["_instantiator"] = "test.build"
    register_instantiator("test.build", lambda cls, config: cls(**{**config, "name": "built"}))
    path = save(tmp_path / "b.ckpt", Net(2), **own)
    assert Net.load_from_checkpoint(path, depth=1).hparams.name == "built"

    # Without nested configurations, what Lightning's command line wrote can be built directly.
    own["hyper_parameters"]["_instantiator"] = "lightning.pytorch.cli.instantiate_module"
    assert Net.load_from_checkpoint(save(tmp_path / "c.ckpt", Net(2), **own)).hparams == {
        "width": 2,
        "depth": 1,
        "name": "net",
    }
    own["hyper_parameters"]["name"] = {"class_path": "os.system", "init_args": {}}
    path = save(tmp_path / "d.ckpt", Net(2), **own)
    with pytest.raises(ArgumentValueError, match="'name' is stored as the configuration of an object"):
        Net.load_from_checkpoint(path)
    assert Net.load_from_checkpoint(path, name="given").hparams.name == "given"


class Sub(Net):
    pass


@pytest.mark.parametrize("path", ["os.system", "nowhere.Net", 3, f"{__name__}.Data", f"{__name__}.Sub"])
def test_class_path(tmp_path: Path, path: Any) -> None:
    import sys

    sys.modules.setdefault(__name__, sys.modules[Sub.__module__])
    file = save(tmp_path / "a.ckpt", Net(2), hyper_parameters={"width": 2, "_class_path": path})
    if path == f"{__name__}.Sub":
        assert type(Net.load_from_checkpoint(file)) is Sub
        return
    with pytest.raises(ArgumentValueError, match="not an imported subclass of Net"):
        Net.load_from_checkpoint(file)


# ---------------------------------------------------------------------------------------------------- files of values


def test_yaml_round_trip_and_what_is_left_out(tmp_path: Path) -> None:
    values = AttributeDict(a=1, b=[1, (2, 3)], c={"d": None}, path=Path("x"), f=print, t=torch.ones(1))
    where = tmp_path / "h.yaml"
    with pytest.warns(FulmenWarning) as caught:
        save_hparams_to_yaml(where, values)
    assert [str(w.message).split("'")[1] for w in caught] == ["f", "t"]
    assert load_hparams_from_yaml(where) == {"a": 1, "b": [1, (2, 3)], "c": {"d": None}, "path": "x"}


def test_yaml_with_interpolation(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    where = tmp_path / "h.yaml"
    where.write_text("a: 1\nb: ${a}\n")
    assert load_hparams_from_yaml(where).b == 1
    assert load_hparams_from_yaml(where, use_omegaconf=False) == {"a": 1, "b": "${a}"}
    save_hparams_to_yaml(where, {"cfg": omegaconf.OmegaConf.create({"a": 1, "b": "${a}"})})
    assert yaml.safe_load(where.read_text()) == {"cfg": {"a": 1, "b": 1}}


def test_csv_round_trip(tmp_path: Path) -> None:
    values = Namespace(a=1, b=0.5, c="text, with comma", d=[1, 2], e=None)
    save_hparams_to_tags_csv(tmp_path / "h.csv", values)
    assert load_hparams_from_tags_csv(tmp_path / "h.csv") == vars(values)
    assert convert("1e3") == 1000.0
    assert convert("a b") == "a b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n", "holds a list, not a mapping"),
        ("a: !!python/object/apply:os.system ['true']\n", "cannot be read"),
        ("a: [\n", "cannot be read"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, words: str) -> None:
    where = tmp_path / "h.yaml"
    where.write_text(text)
    with pytest.raises(ArgumentValueError, match=words):
        read_hparams_file(where)


def test_empty_yaml_and_bad_targets(tmp_path: Path) -> None:
    (tmp_path / "h.yml").write_text("")
    assert read_hparams_file(tmp_path / "h.yml") == {}
    with pytest.raises(ArgumentTypeError, match="hparams is a list"):
        save_hparams_to_yaml(tmp_path / "h.yaml", [1])  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(FileNotFoundError, match="does not exist"):
        save_hparams_to_yaml(tmp_path / "no" / "h.yaml", {})


def test_update_hparams() -> None:
    values: dict[str, Any] = {"c": 4}
    update_hparams(values, {"a": {"b": 2}, "c": 1})
    assert values == {"a": {"b": 2}, "c": 1}
    update_hparams(values, {"a": {"d": 4}, "c": {"x": 7}})
    assert values == {"a": {"b": 2, "d": 4}, "c": {"x": 7}}


# ------------------------------------------------------------------------------------------------------- constructor


def test_unreadable_annotations_are_no_obstacle() -> None:
    class Model:
        def __init__(self, cfg: NoSuchName):  # type: ignore[name-defined]  # noqa: F821  # the point of the test
            self.cfg = cfg

    assert build(Request(Model, {"a": 1}, "cfg", {}, "here")).cfg.a == 1
