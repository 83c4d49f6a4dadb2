from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import types
import uuid
import warnings
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fulmen.engine.storage import UnsafeValue, add_safe_types, decode, encode, find_unsafe, require_safe
from fulmen.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    CorruptCheckpointError,
    FulmenWarning,
    UnsafeCheckpointError,
)

from .conftest import through_torch


class Mode(enum.Enum):
    FAST = 1
    HOME = pathlib.Path("home")
    CALL = len


class Level(enum.IntEnum):
    LOW = 3


class Rights(enum.Flag):
    R = 1
    W = 2


@dataclasses.dataclass
class Config:
    width: int
    root: pathlib.Path
    parts: list[Any] = dataclasses.field(default_factory=list)
    ran: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.ran += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


Point = collections.namedtuple("Point", "x y")


class Attributes(dict):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Text(str):
    def __str__(self) -> str:
        return "hidden"


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def activation(x: Any) -> Any:
    return x


PLAIN = [
    pathlib.Path("a/b"),
    pathlib.PurePosixPath("/x"),
    pathlib.PureWindowsPath("c:\\x"),
    range(1, 9, 3),
    slice(None, 3, pathlib.Path("odd")),
    {1, 2.5, "a", None},
    {1 << 3000, b""},
    frozenset([(1, 2), "a", pathlib.Path("p")]),
    deque([1, pathlib.Path("p")], maxlen=4),
    Counter("hello"),
    defaultdict(list, a=[1]),
    defaultdict(None, a=1),
    OrderedDict(b=1, a=pathlib.Path("p")),
    types.MappingProxyType({"a": 1}),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, fold=1),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "NAME")),
    datetime.datetime(2026, 7, 2, tzinfo=zoneinfo.ZoneInfo("UTC")),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2, 3),
    datetime.timedelta(-1, 3, 5),
    datetime.UTC,
    decimal.Decimal("1.10"),
    fractions.Fraction(2, 3),
    uuid.UUID(int=7),
    argparse.Namespace(a=1, p=pathlib.Path("p")),
    types.SimpleNamespace(b=[pathlib.Path("p")]),
    ...,
    b"",
    b"\x00\xff",
    bytearray(b"x"),
    1 << 4000,
    -(1 << 4000),
    1 + 2j,
    "\ud800",
    torch.float16,
    torch.device("cpu"),
    torch.Size([1, 2]),
    torch.strided,
    torch.channels_last,
    {pathlib.Path("p"): 1, (1, int): 2},
    {(1, "a"): 2, 3: {None: True}},
    OrderedDict([(pathlib.Path("p"), 1), (2.5, 2)]),
    [1, (2, [pathlib.Path("p"), {"k": {pathlib.Path("q")}}])],
    nn.ReLU,
    torch.optim.AdamW,
    np.float32,
    int,
]
USERS = [
    Mode.FAST,
    Mode.HOME,
    Level.LOW,
    Rights.R | Rights.W,
    Config(3, pathlib.Path("r"), [Mode.FAST]),
    Frozen(1, (2,)),
    Point(1, pathlib.Path("p")),
    Attributes(a=1, b=pathlib.Path("p")),
    Text("text"),
    activation,
    Loss,
]


@pytest.mark.feature("C-07")
@pytest.mark.parametrize("value", PLAIN, ids=lambda v: f"{type(v).__name__}-{str(v)[:20]!a}")
def test_plain_values_come_back_in_any_process(value: Any, round_trip: Any, another_process: Any) -> None:
    raw = through_torch(encode({"x": value}))
    another_process()
    back = decode(raw)["x"]
    assert type(back) is type(value)
    assert back == value
    if isinstance(value, defaultdict):
        assert back.default_factory is value.default_factory
    if isinstance(value, deque):
        assert back.maxlen == value.maxlen
    if isinstance(value, datetime.datetime):
        assert (back.fold, back.tzname()) == (value.fold, value.tzname())


ARRAYS = [
    np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::-1],
    np.arange(3, dtype=">f4"),
    np.array(1.5),
    np.zeros((0, 3), np.float32),
    np.array([True, False]),
    np.array([1, 2], np.uint64),
    np.array(["a", "bcd"]),
    np.array([b"a"]),
    np.array(["2026-01-02"], "datetime64[D]"),
    np.array([1 + 2j], np.complex64),
    np.array([1.25], np.longdouble),
    np.array([(1, [2.0, 3.0])], dtype=[("a", "i4"), ("b", "f8", (2,))]),
    np.array([1, "a", None, pathlib.Path("p")], dtype=object).reshape(2, 2),
]
SCALARS = [
    np.float32(0.1),
    np.float16(1),
    np.int8(-3),
    np.bool_(True),
    np.str_("abc"),
    np.bytes_(b""),
    np.complex64(1j),
    np.longdouble(1.25),
    np.datetime64("2026-01-02"),
    np.timedelta64(3, "s"),
    np.dtype("f4"),
    np.dtype([("a", "i4"), ("b", "f8", (2,))]),
]


@pytest.mark.feature("C-07")
@pytest.mark.parametrize("value", ARRAYS, ids=lambda v: f"{v.dtype.str}{v.shape}")
def test_arrays(value: Any, round_trip: Any) -> None:
    back = round_trip(value)
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert np.array_equal(back, value)
    assert back.flags.writeable


@pytest.mark.feature("C-07")
@pytest.mark.parametrize("value", SCALARS, ids=lambda v: f"{type(v).__name__}-{v}")
def test_numpy_scalars(value: Any, round_trip: Any) -> None:
    back = round_trip(value)
    assert type(back) is type(value)
    assert back == value


@pytest.mark.feature("C-07")
def test_arrays_that_share_memory_with_tensors_of_another_type(round_trip: Any) -> None:
    tensor = torch.arange(4.0)
    back = round_trip({"t": tensor, "a": tensor.numpy().view(np.int32)})
    assert torch.equal(back["t"], tensor)
    assert np.array_equal(back["a"], tensor.numpy().view(np.int32))


@pytest.mark.feature("C-07")
def test_generators_go_on_where_they_were(round_trip: Any) -> None:
    ours = {
        "random": random.Random(3),
        "numpy": np.random.default_rng(3),
        "old": np.random.RandomState(3),
        "torch": torch.Generator().manual_seed(3),
        "global": np.random.get_state(),
        "python": random.getstate(),
    }
    back = round_trip(ours)
    assert back["random"].random() == ours["random"].random()
    assert back["numpy"].random() == ours["numpy"].random()
    assert back["old"].rand() == ours["old"].rand()
    assert torch.equal(torch.rand(3, generator=back["torch"]), torch.rand(3, generator=ours["torch"]))
    assert np.array_equal(back["global"][1], ours["global"][1])
    assert back["python"] == ours["python"]


@pytest.mark.feature("C-07")
def test_omegaconf(round_trip: Any) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a.b}", "p": pathlib.Path("p"), "m": Mode.FAST})
    omegaconf.OmegaConf.set_struct(config, True)
    raw = encode({"x": config})
    assert raw["x"]["a"] == {"b": [1, 2]}
    back = round_trip(config)
    assert back == config
    assert back.c == [1, 2]
    assert omegaconf.OmegaConf.is_struct(back)


@pytest.mark.feature("C-07")
@pytest.mark.parametrize("value", USERS, ids=lambda v: type(v).__name__)
class TestTypesOfTheUser:
    def test_come_back_in_the_process_that_wrote_them(self, value: Any, round_trip: Any) -> None:
        back = round_trip({"here": value})["here"]
        assert type(back) is type(value)
        assert back == value

    def test_come_back_when_the_file_is_trusted(self, value: Any, another_process: Any) -> None:
        raw = through_torch(encode({"x": value}))
        another_process()
        back = decode(raw, weights_only=False)["x"]
        assert type(back) is type(value)
        assert back == value

    def test_come_back_when_registered(self, value: Any, another_process: Any) -> None:
        raw = through_torch(encode({"x": value}))
        another_process()
        target = value if isinstance(value, (type, types.FunctionType)) else type(value)
        add_safe_types(target, Mode)
        assert decode(raw)["x"] == value

    def test_stay_plain_elsewhere_with_one_note(self, value: Any, another_process: Any) -> None:
        raw = through_torch(encode({"x": value}))
        another_process()
        if isinstance(value, (type, types.FunctionType)):
            back = decode(raw)["x"]
            assert isinstance(back, UnsafeValue)
            with pytest.raises(UnsafeCheckpointError, match="add_safe_types"):
                back(1)
            return
        with pytest.warns(FulmenWarning, match="W072") as seen:
            back = decode(raw)["x"]
        assert len(seen) == 1
        assert "x: " in str(seen[0].message) or "x." in str(seen[0].message)
        assert type(back).__module__ in ("builtins", "pathlib")


@pytest.mark.feature("C-07")
def test_plain_forms_are_what_others_would_expect(another_process: Any) -> None:
    plain = encode(
        {
            "p": pathlib.Path("a"),
            "m": Mode.FAST,
            "c": Config(1, pathlib.Path("r")),
            "n": np.float32(1.5),
            "d": deque([1]),
        }
    )
    assert plain["p"] == "a"
    assert plain["m"] == 1
    assert plain["c"] == {"width": 1, "root": "r", "parts": [], "ran": 1}
    assert plain["n"] == 1.5
    assert plain["d"] == [1]


@pytest.mark.feature("C-07")
def test_dataclass_comes_back_without_running_its_init(round_trip: Any) -> None:
    assert round_trip(Config(1, pathlib.Path("r"))).ran == 1


@pytest.mark.feature("C-07")
def test_a_dataclass_that_changed_since_stays_plain(another_process: Any) -> None:
    raw = through_torch(encode({"x": Frozen(1)}))
    del raw["x"]["a"]
    with pytest.warns(FulmenWarning, match="no value for field 'a'"):
        assert decode(raw)["x"] == {"b": ()}


atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=1 << 2030, max_value=1 << 2060),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from([pathlib.Path("p"), Level.LOW, Mode.HOME, range(3), decimal.Decimal("1.5"), torch.int8]),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    st.timedeltas(),
    st.uuids(),
    st.fractions(),
)
hashable = st.recursive(atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
trees = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(hashable, inner, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3).map(OrderedDict),
        st.sets(hashable, max_size=3),
        st.lists(inner, max_size=3).map(lambda v: deque(v, maxlen=5)),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda d: defaultdict(list, d)),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda d: types.SimpleNamespace(d=d)),
        st.tuples(inner, inner).map(lambda t: Point(*t)),
    ),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, dict):
        return all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, (list, tuple, deque)):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return not isinstance(a, types.SimpleNamespace) or same(vars(a), vars(b))


@pytest.mark.feature("C-07")
@given(trees)
def test_nested_values_round_trip(tree: Any) -> None:
    checkpoint = {"tree": tree, "epoch": 1}
    before = pickle.dumps(tree)
    back = decode(through_torch(encode(checkpoint)))
    assert same(back, checkpoint)
    assert pickle.dumps(tree) == before


@pytest.mark.feature("C-07", "C-09")
def test_weights_are_neither_copied_nor_changed() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = module.state_dict()
    optimizer = torch.optim.Adam(module.parameters())
    plain = encode({"state_dict": state, "optimizer_states": [optimizer.state_dict()], "p": pathlib.Path("p")})
    assert plain["state_dict"] is state
    back = through_torch(plain)
    assert back["state_dict"]._metadata == state._metadata
    nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).load_state_dict(back["state_dict"])


@pytest.mark.feature("C-07")
def test_tensors_with_attributes_and_buffers(round_trip: Any) -> None:
    weight = nn.Parameter(torch.ones(2), requires_grad=False)
    weight.hook = lambda: None
    back = round_trip({"w": weight, "b": nn.Buffer(torch.ones(2)), "m": torch.empty(2, device="meta")})
    assert type(back["w"]) is nn.Parameter
    assert not back["w"].requires_grad
    assert torch.equal(back["w"], weight)
    assert back["m"].is_meta


@pytest.mark.feature("C-07")
def test_shared_containers_are_looked_at_once(round_trip: Any) -> None:
    tree: Any = [pathlib.Path("p")]
    for _ in range(60):  # 2**60 paths
        tree = [tree, tree]
    back = round_trip(tree)
    assert back[0] is back[1]


@pytest.mark.feature("C-07", "M-06")
class TestLeftOut:
    def test_lambda_lock_and_cycle_are_left_out_and_named_once(self) -> None:
        cycle: list[Any] = []
        cycle.append(cycle)
        ring: dict[str, Any] = {"a": 1}
        ring["ring"] = ring
        deep: Any = 1
        for _ in range(3000):
            deep = [deep]
        hparams = {
            "fn": lambda: 1,
            "lock": threading.Lock(),
            "cycle": cycle,
            "ring": ring,
            "deep": deep,
            "list": [1, lambda: 2],
            "space": argparse.Namespace(a=1, f=lambda: 3),
            "kept": [1],
        }
        with pytest.warns(FulmenWarning, match="W071") as seen:
            plain = encode({"hyper_parameters": hparams})
        assert len(seen) == 1
        back = decode(through_torch(plain))
        assert back["hyper_parameters"] == {"ring": {"a": 1}, "space": argparse.Namespace(a=1), "kept": [1]}
        paths = {entry["path"] for entry in back["fulmen"]["left_out"]}
        assert paths == {
            f"hyper_parameters.{name}" for name in ("fn", "lock", "cycle", "ring.ring", "deep", "list", "space.f")
        }
        for path in paths:
            if "deep" not in path:
                assert path in str(seen[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            encode({"hyper_parameters": hparams})
        assert "fn" in hparams

    def test_half_a_dataclass_is_left_out_whole(self) -> None:
        with pytest.warns(FulmenWarning, match=r"x: .*Config"):
            plain = encode({"x": Config(1, pathlib.Path("p"), [lambda: 1]), "y": 1})
        assert "x" not in plain

    def test_default_factory_that_cannot_be_kept(self, round_trip: Any) -> None:
        with pytest.warns(FulmenWarning, match="default_factory"):
            back = round_trip(defaultdict(lambda: 3, a=1))
        assert back == {"a": 1}
        assert type(back) is dict


def through_and_forget(checkpoint: dict[str, Any], forget: Any) -> dict[str, Any]:
    raw = through_torch(encode(checkpoint))
    forget()
    return raw


@pytest.mark.feature("C-07")
class TestObjects:
    def test_come_back_in_the_process_that_wrote_them(self, round_trip: Any) -> None:
        back = round_trip({"loss": Loss(), "part": functools.partial(activation, 1)})
        assert torch.equal(back["loss"].weight, torch.arange(3.0))
        assert back["part"]() == 1

    def test_share_storage_with_the_weights(self) -> None:
        net = nn.Linear(1000, 100)
        file = through_torch(encode({"state_dict": net.state_dict(), "hyper_parameters": {"net": net}}))
        assert decode(file)["hyper_parameters"]["net"].weight.data_ptr() == file["state_dict"]["weight"].data_ptr()

    def test_are_placeholders_elsewhere(self, another_process: Any) -> None:
        raw = through_and_forget({"hyper_parameters": {"loss": Loss(), "lr": 0.1}, "c": [Loss()]}, another_process)
        back = decode(raw)
        assert back["hyper_parameters"]["lr"] == 0.1
        assert [value.path for value in find_unsafe(back)] == ["hyper_parameters.loss", "c[0]"]
        for use in (lambda v: v(1), lambda v: v.weight, list, lambda v: v[0]):
            with pytest.raises(UnsafeCheckpointError, match=r"hyper_parameters\.loss: .*Loss"):
                use(back["hyper_parameters"]["loss"])
        require_safe(back["hyper_parameters"]["lr"])

    def test_error_lists_path_type_and_remedies(self, another_process: Any) -> None:
        raw = through_and_forget({"hyper_parameters": {"loss": Loss()}}, another_process)
        with pytest.raises(UnsafeCheckpointError) as caught:
            require_safe(decode(raw), "a.ckpt")
        text = str(caught.value)
        for part in ("a.ckpt", "hyper_parameters.loss", "Loss", "an argument", "add_safe_types", "weights_only=False"):
            assert part in text

    def test_trusted_file(self, another_process: Any) -> None:
        raw = through_and_forget({"loss": Loss()}, another_process)
        assert isinstance(decode(raw, weights_only=False)["loss"], Loss)

    def test_registered(self, another_process: Any) -> None:
        raw = through_and_forget({"loss": Loss()}, another_process)
        assert isinstance(decode(raw, safe_types=[Loss])["loss"], Loss)
        assert isinstance(decode(raw)["loss"], UnsafeValue)
        add_safe_types(Loss)
        assert torch.equal(decode(raw)["loss"].weight, torch.arange(3.0))

    def test_saving_a_placeholder_again_keeps_it_and_makes_it_no_safer(self, another_process: Any) -> None:
        raw = through_and_forget({"loss": Loss()}, another_process)
        again = through_torch(encode(decode(raw)))
        assert isinstance(decode(again)["loss"], UnsafeValue)
        assert isinstance(decode(again, weights_only=False)["loss"], Loss)

    def test_map_location_reaches_into_them(self, tmp_path: pathlib.Path) -> None:
        torch.save(encode({"loss": Loss()}), tmp_path / "a")
        raw = torch.load(tmp_path / "a", map_location="meta", weights_only=True)
        assert raw["fulmen"]["objects"]["loss"]["tensors"][0].is_meta

    def test_another_process_really_does_not_trust(self, tmp_path: pathlib.Path) -> None:
        torch.save(encode({"m": nn.MSELoss(), "e": Rights.R}), tmp_path / "a")
        code = (
            "import torch, warnings; warnings.simplefilter('ignore')\n"
            "from fulmen.engine.storage import decode\n"
            "back = decode(torch.load('a', weights_only=True)); print(type(back['m']).__name__, back['e'])"
        )
        run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["UnsafeValue", "1"]


@pytest.mark.feature("C-07")
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a.b.C", ArgumentTypeError, "pass the class itself"),
        (3, ArgumentTypeError, "takes classes and functions"),
        (subprocess.Popen, ArgumentValueError, "weights_only=False"),
        (eval, ArgumentValueError, "could run programs"),
    ],
)
def test_wrong_safe_types(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"(?i){words}"):
        add_safe_types(value)


@pytest.mark.parametrize(
    ("checkpoint", "words"), [([1], "must be a dict"), ({"fulmen": 3}, "Rename yours"), ({math.nan: 1}, "keys")]
)
def test_wrong_checkpoints(checkpoint: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        encode(checkpoint)


def test_what_is_not_ours_is_left_alone() -> None:
    raw = {"state_dict": {}}
    assert decode(raw) is raw
    assert decode({"fulmen": {"mine": 1}}) == {"fulmen": {"mine": 1}}


def test_entries_of_the_trainer_stay_and_ours_go() -> None:
    back = decode(encode({"fulmen": {"run_id": "r", "rng": (np.arange(2),)}}))
    assert back["fulmen"]["run_id"] == "r"
    assert isinstance(back["fulmen"]["rng"][0], np.ndarray)
    assert set(back["fulmen"]) == {"run_id", "rng"}


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(CheckpointError, match="Update fulmen"):
        decode({"fulmen": {"format": 99}})


HOSTILE = [
    {"c": {"x": {"t": "range"}}},
    {"c": {"x": {"t": "nonsense"}}},
    {"c": {"x": {"t": []}}},
    {"c": {"x": {"t": "object", "at": "none"}}},
    {"c": {"x": {"t": "np_array", "dtype": "|O", "shape": [1]}}},
    {"c": {"x": {"t": "np_generator"}}},
    {"c": {"fulmen": {"t": "set"}}},
    {"c": 3},
    {},
]


@pytest.mark.feature("C-05", "C-07")
@pytest.mark.parametrize("types_", HOSTILE, ids=str)
def test_tags_that_fit_nothing_are_damage(types_: Any) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"a\.ckpt is damaged"):
        decode({"x": torch.zeros(1), "fulmen": {"format": 1, "types": types_}}, where="a.ckpt")


def test_tags_nested_without_end() -> None:
    node: dict[str, Any] = {}
    node["in"], node["t"] = node, "set"
    with pytest.raises(CorruptCheckpointError):
        decode({"x": 1, "fulmen": {"format": 1, "types": {"c": {"x": node}}}})


@pytest.mark.feature("C-07")
def test_a_name_in_a_file_is_never_imported(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text("import pathlib; pathlib.Path('ran').touch()\nclass T(dict): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    types_ = {"c": {"x": {"t": "subclass", "type": "trap_module.T"}, "y": {"t": "reference", "type": "trap_module.T"}}}
    with pytest.warns(FulmenWarning, match="trap_module"):
        back = decode({"x": {"a": 1}, "y": "<>", "fulmen": {"format": 1, "types": types_}})
    assert back["x"] == {"a": 1}
    assert isinstance(back["y"], UnsafeValue)
    assert not (tmp_path / "ran").exists()
    assert "trap_module" not in sys.modules


@pytest.mark.slow
def test_twenty_thousand_tensors_are_looked_through_quickly() -> None:
    import timeit

    state = {"state_dict": OrderedDict((f"layer.{i}.weight", torch.zeros(1)) for i in range(20_000))}
    assert encode(state)["state_dict"] is state["state_dict"]
    assert min(timeit.repeat(lambda: encode(state), number=1, repeat=5)) < 0.05
