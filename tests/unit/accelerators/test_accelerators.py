"""Which hardware and devices an argument means. CUDA and MPS are not here: only what torch says of them is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fulmen.accelerators import (
    ACCELERATOR_REGISTRY,
    Accelerator,
    AcceleratorRegistry,
    CPUAccelerator,
    CUDAAccelerator,
    MPSAccelerator,
    accelerator_for,
    find_usable_cuda_devices,
    resolve_accelerator,
)
from fulmen.accelerators.devices import parse_indices, parse_process_count
from fulmen.errors import ArgumentTypeError, ArgumentValueError

pytestmark = pytest.mark.feature("H-01")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs, as far as the two functions that are asked know."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def own() -> Iterator[type[Accelerator]]:
    class Abacus(CPUAccelerator):
        @staticmethod
        def name() -> str:
            return "abacus"

        @staticmethod
        def get_parallel_devices(devices: Any) -> list[torch.device]:
            return [torch.device("meta")] * int(devices)

        @staticmethod
        def auto_device_count() -> int:
            return 2

    Abacus.register_accelerators(ACCELERATOR_REGISTRY)
    yield Abacus
    ACCELERATOR_REGISTRY.remove("abacus")


def names(devices: list[torch.device]) -> list[str]:
    return [str(device) for device in devices]


# ----------------------------------------------------------------------------------------------------------- resolving
@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize(
    ("value", "devices", "expected"),
    [("auto", "auto", 1), ("cpu", 1, 1), (" CPU ", "auto", 1), (CPUAccelerator(), "2", 2), ("cpu", 3, 3)],
)
def test_the_cpu(value: Any, devices: Any, expected: int) -> None:
    found = resolve_accelerator(value, devices)
    assert type(found.accelerator) is CPUAccelerator
    assert names(found.devices) == ["cpu"] * expected


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("value", ["auto", "gpu", "cuda", "CUDA"])
@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("auto", [0, 1, 2]),
        (-1, [0, 1, 2]),
        ("-1", [0, 1, 2]),
        (2, [0, 1]),
        ("2", [0, 1]),
        ([2, 0], [2, 0]),
        ("2,0", [2, 0]),
        ("1,", [1]),
        ((1,), [1]),
    ],
)
def test_gpus(value: str, devices: Any, expected: list[int]) -> None:
    found = resolve_accelerator(value, devices)
    assert type(found.accelerator) is CUDAAccelerator
    assert names(found.devices) == [f"cuda:{index}" for index in expected]


@pytest.mark.usefixtures("nothing", "mps")
@pytest.mark.parametrize("value", ["auto", "gpu", "mps"])
@pytest.mark.parametrize("devices", ["auto", 1, [0], -1])
def test_mps(value: str, devices: Any) -> None:
    found = resolve_accelerator(value, devices)
    assert type(found.accelerator) is MPSAccelerator
    assert names(found.devices) == ["mps:0"]


def test_ones_own(own: type[Accelerator]) -> None:
    found = resolve_accelerator("abacus")
    assert type(found.accelerator) is own
    assert names(found.devices) == ["meta", "meta"]
    assert "abacus" in ACCELERATOR_REGISTRY.available_accelerators()
    with pytest.raises(ArgumentValueError, match="Did you mean 'abacus'"):
        resolve_accelerator("abakus")


def test_accelerators_by_device() -> None:
    for device, kind in (("cpu", CPUAccelerator), ("cuda:1", CUDAAccelerator), ("mps", MPSAccelerator)):
        assert type(accelerator_for(torch.device(device))) is kind
    with pytest.raises(ArgumentValueError, match="no accelerator 'meta' is registered"):
        accelerator_for(torch.device("meta"))


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize(
    ("value", "devices", "error", "words"),
    [
        ("cuda", "auto", ArgumentValueError, r"accelerator='cuda' was asked for, but torch\.cuda\.is_available\(\) is"),
        ("cuda", "auto", ArgumentValueError, "Here 'cpu' is available; use accelerator='auto' or 'cpu'"),
        ("mps", "auto", ArgumentValueError, r"torch\.backends\.mps\.is_available\(\) is False"),
        ("gpu", 1, ArgumentValueError, "'gpu' was asked for.*cuda.*mps.*'cpu'"),
        (CUDAAccelerator(), 1, ArgumentValueError, "is False"),
        ("cpuu", 1, ArgumentValueError, "'cpuu' is not known; there are 'cpu', 'cuda', 'mps'.*Did you mean 'cpu'"),
        ("tpu", 1, ArgumentValueError, "'tpu' has no built-in support"),
        ("", 1, ArgumentValueError, "accelerator='' is not known"),
        (None, 1, ArgumentTypeError, "accelerator=None.*not None"),
        (0, 1, ArgumentTypeError, "accelerator=0.*not a int"),
        (CPUAccelerator, 1, ArgumentTypeError, "Accelerator object"),
        ("cpu", 0, ArgumentValueError, "devices=0.*1 or more"),
        ("cpu", -1, ArgumentValueError, "devices=-1.*number of processes"),
        ("cpu", "two", ArgumentValueError, "devices='two'"),
        ("cpu", [0], ArgumentTypeError, r"devices=\[0\].*number of processes"),
        ("cpu", 1.5, ArgumentTypeError, "devices=1.5"),
        ("cpu", True, ArgumentTypeError, "devices=True"),
        ("cpu", None, ArgumentTypeError, "devices=None"),
    ],
)
def test_bad_arguments(value: Any, devices: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_accelerator(value, devices)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("devices", "error", "words"),
    [
        (0, ArgumentValueError, "devices=0"),
        (-2, ArgumentValueError, "devices=-2.*-1 or 'auto' for all"),
        (4, ArgumentValueError, r"devices=4: this machine has 3 cuda devices: \[0, 1, 2\]"),
        ([0, 3], ArgumentValueError, r"devices=\[0, 3\]: \[3\] not found; this machine has 3"),
        ("3,", ArgumentValueError, r"\[3\] not found"),
        ([1, 1], ArgumentValueError, "names a device twice"),
        ([], ArgumentValueError, r"devices=\[\] is empty"),
        (",", ArgumentValueError, "is empty"),
        ("a,b", ArgumentValueError, "devices='a,b'"),
        ("", ArgumentValueError, "devices=''"),
        ([0, "1"], ArgumentTypeError, "indices are whole numbers"),
        ([True], ArgumentTypeError, "indices are whole numbers"),
        (1.0, ArgumentTypeError, "devices=1.0"),
        ({"a": 1}, ArgumentTypeError, "devices="),
    ],
)
def test_bad_gpu_devices(devices: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_accelerator("cuda", devices)


@given(st.integers(1, 8), st.data())
def test_indices_are_always_among_those_that_are_there(count: int, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    assert parse_indices(wanted, range(count), "cuda") == wanted
    assert parse_indices(",".join(map(str, wanted)) + ",", range(count), "cuda") == wanted
    number = data.draw(st.integers(1, count))
    assert parse_indices(number, range(count), "cuda") == list(range(number))
    assert parse_process_count(str(number)) == number


def test_no_device_is_said_as_such() -> None:
    for devices in (-1, 1, [0]):
        with pytest.raises(ArgumentValueError, match="no cuda device is there"):
            parse_indices(devices, [], "cuda")


# -------------------------------------------------------------------------------------------------------- what they do
def test_devices_of_another_kind_are_refused() -> None:
    for accelerator, device in (
        (CPUAccelerator(), "cuda:0"),
        (CUDAAccelerator(), "cpu"),
        (MPSAccelerator(), "cpu"),
    ):
        with pytest.raises(ArgumentValueError, match=f"cannot set up '{device}'"):
            accelerator.setup_device(torch.device(device))
    CPUAccelerator().setup_device(torch.device("cpu"))
    MPSAccelerator().setup_device(torch.device("mps"))


def test_statistics_and_ends() -> None:
    stats = CPUAccelerator().get_device_stats("cpu")
    assert set(stats) == {"cpu_percent", "cpu_vm_percent", "cpu_swap_percent"}
    assert 0 < stats["cpu_vm_percent"] <= 100
    assert set(MPSAccelerator().get_device_stats("mps")) == set(stats)
    for accelerator in (CPUAccelerator(), CUDAAccelerator(), MPSAccelerator()):
        accelerator.setup(None)
        accelerator.teardown()
        assert accelerator.missing()


def test_without_psutil_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psutil", None)
    with pytest.raises(ModuleNotFoundError, match="pip install psutil"):
        CPUAccelerator().get_device_stats("cpu")


@pytest.mark.usefixtures("gpus")
def test_usable_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(size: int, device: torch.device) -> None:
        if device.index == 1:
            raise RuntimeError("all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(torch, "empty", empty)
    assert find_usable_cuda_devices(2) == [0, 2]
    assert find_usable_cuda_devices(0) == []
    with pytest.raises(ArgumentValueError, match=r"only \[0, 2\] can be used now"):
        find_usable_cuda_devices(3)
    with pytest.raises(ArgumentValueError, match="this machine has 3"):
        find_usable_cuda_devices(4)
    with pytest.raises(ArgumentValueError, match="-1 for all"):
        find_usable_cuda_devices(-2)
    with pytest.raises(ArgumentTypeError, match="whole number"):
        find_usable_cuda_devices("1")  # type: ignore[arg-type]  # the error is the test


def test_all_usable_gpus_are_those_that_are_not_busy(monkeypatch: pytest.MonkeyPatch, gpus: None) -> None:
    monkeypatch.setattr(torch, "empty", lambda size, device: None)
    assert find_usable_cuda_devices() == [0, 1, 2]


def test_registry_of_accelerators() -> None:
    table = AcceleratorRegistry()
    CPUAccelerator.register_accelerators(table)
    table.register("factory", lambda: CPUAccelerator(), "made by a function")
    assert table.available_accelerators() == {"cpu", "factory"}
    assert table["cpu"]["description"] == "CPUAccelerator"
