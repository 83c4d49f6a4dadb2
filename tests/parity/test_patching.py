"""Patches and callbacks that come during a run act as in Lightning.

Users, finetuning callbacks and test suites replace `training_step` in hooks, mock methods, and append callbacks while a
fit runs. Each case is run on both frameworks; what was called must be equal.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import rows

Calls = list[str]


def base_of(L: Any, calls: Calls) -> Any:
    class Base(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 3)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            calls.append(f"step {batch_idx}")
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            calls.append(f"validation {batch_idx}")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Base


def patched(module: Any, calls: Calls) -> None:
    """Replace the instance's training step by one that also notes itself."""
    plain = module.training_step

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        calls.append("patched")
        return plain(batch, batch_idx)

    module.training_step = types.MethodType(step, module)


def run(framework: Framework, root: Path, module: Any, callbacks: Any = (), **changes: Any) -> Any:
    trainer = framework.trainer(root, callbacks=list(callbacks), **{"max_epochs": 2, **changes})
    trainer.fit(module, DataLoader(rows(12), batch_size=4), DataLoader(rows(4), batch_size=4))
    return trainer


def in_module_hook(hook: str) -> Callable[[Framework, Path, Calls], None]:
    def case(framework: Framework, root: Path, calls: Calls) -> None:
        base = base_of(framework.L, calls)

        def method(self: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(hook)
            patched(self, calls)

        run(framework, root, type("Patching", (base,), {hook: method})())

    return case


def in_callback_hook(hook: str) -> Callable[[Framework, Path, Calls], None]:
    def case(framework: Framework, root: Path, calls: Calls) -> None:
        def method(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(hook)
            if "patched once" not in calls:
                calls.append("patched once")
                patched(pl_module, calls)

        callback = type("Patching", (framework.L.Callback,), {hook: method})()
        run(framework, root, base_of(framework.L, calls)(), [callback])

    return case


def before_fit(framework: Framework, root: Path, calls: Calls) -> None:
    module = base_of(framework.L, calls)()
    patched(module, calls)
    run(framework, root, module)


def taken_back(framework: Framework, root: Path, calls: Calls) -> None:
    """A patch that is removed again in the second epoch."""

    def on_train_epoch_start(self: Any) -> None:
        if self.current_epoch == 0:
            patched(self, calls)
        else:
            del self.training_step

    base = base_of(framework.L, calls)
    run(framework, root, type("TakesBack", (base,), {"on_train_epoch_start": on_train_epoch_start})())


def mocked_object(framework: Framework, root: Path, calls: Calls) -> None:
    """`mock.patch.object` on instance and class, with the original inside, as test suites of users do."""
    base = base_of(framework.L, calls)
    module = base()
    with (
        mock.patch.object(module, "training_step", wraps=module.training_step) as step,
        mock.patch.object(base, "on_train_batch_end") as batch_end,
        mock.patch.object(base, "configure_optimizers", lambda self: torch.optim.SGD(self.parameters(), lr=0.0)),
    ):
        run(framework, root, module)
    calls.append(f"step called {step.call_count}, batch end {batch_end.call_count}")
    calls.append(f"arguments {[call.args[1] for call in step.call_args_list]} {step.call_args.kwargs}")


def mocked_callback(framework: Framework, root: Path, calls: Calls) -> None:
    callback = framework.L.Callback()
    with mock.patch.object(callback, "on_train_batch_start", side_effect=lambda *a: calls.append("mock")) as start:
        run(framework, root, base_of(framework.L, calls)(), [callback])
    calls.append(f"start {start.call_count}")


def mock_as_callback(framework: Framework, root: Path, calls: Calls) -> None:
    """A mock with the callback's interface: every hook is noted."""
    callback = mock.MagicMock(spec=framework.L.Callback)
    callback.state_key = "mock"
    callback.state_dict.return_value = {}
    run(framework, root, base_of(framework.L, calls)(), [callback])
    calls.extend(call[0] for call in callback.method_calls if call[0].startswith("on_"))


def appended(hook: str) -> Callable[[Framework, Path, Calls], None]:
    def case(framework: Framework, root: Path, calls: Calls) -> None:
        L = framework.L

        class Late(L.Callback):  # type: ignore[name-defined, misc]  # the base class depends on the framework
            def on_train_start(self, *args: Any) -> None:
                calls.append("late: train start")

            def on_train_epoch_start(self, *args: Any) -> None:
                calls.append("late: epoch start")

            def on_train_batch_start(self, *args: Any) -> None:
                calls.append("late: batch start")

            def on_train_batch_end(self, *args: Any) -> None:
                calls.append("late: batch end")

            def on_validation_batch_start(self, *args: Any) -> None:
                calls.append("late: validation batch start")

            def on_train_end(self, *args: Any) -> None:
                calls.append("late: train end")

        def method(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(hook)
            if not any(isinstance(callback, Late) for callback in trainer.callbacks):
                trainer.callbacks.append(Late())

        callback = type("Appends", (L.Callback,), {hook: method})()
        run(framework, root, base_of(L, calls)(), [callback])

    return case


def list_replaced(framework: Framework, root: Path, calls: Calls) -> None:
    """`trainer.callbacks = [...]` before `fit`."""
    L = framework.L

    class Notes(L.Callback):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def on_train_batch_end(self, *args: Any) -> None:
            calls.append("notes")

    trainer = framework.trainer(root, max_epochs=1)
    trainer.callbacks = [Notes()]
    trainer.fit(base_of(L, calls)(), DataLoader(rows(12), batch_size=4))


def hook_on_instance(framework: Framework, root: Path, calls: Calls) -> None:
    module = base_of(framework.L, calls)()
    module.on_train_epoch_end = lambda: calls.append("instance: epoch end")
    module.on_before_zero_grad = lambda optimizer: calls.append(type(optimizer).__name__)
    run(framework, root, module)


def validation_patched(framework: Framework, root: Path, calls: Calls) -> None:
    def on_validation_start(self: Any) -> None:
        plain = self.validation_step

        def step(batch: Any, batch_idx: int) -> None:
            calls.append("patched validation")
            plain(batch, batch_idx)

        self.validation_step = step

    base = base_of(framework.L, calls)
    run(framework, root, type("Patching", (base,), {"on_validation_start": on_validation_start})())


def stops(hook: str) -> Callable[[Framework, Path, Calls], None]:
    """`trainer.should_stop` and limits set from a hook."""

    def case(framework: Framework, root: Path, calls: Calls) -> None:
        def method(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(f"{hook} {trainer.global_step}")
            trainer.should_stop = trainer.global_step >= 2

        callback = type("Stops", (framework.L.Callback,), {hook: method})()
        trainer = run(framework, root, base_of(framework.L, calls)(), [callback], max_epochs=4)
        calls.append(f"{trainer.global_step} {trainer.current_epoch}")

    return case


CASES: dict[str, Callable[[Framework, Path, Calls], None]] = {
    "before fit": before_fit,
    **{f"module's {h}": in_module_hook(h) for h in ("on_fit_start", "on_train_start", "on_train_epoch_start")},
    "module's setup": in_module_hook("setup"),
    "module's configure_model": in_module_hook("configure_model"),
    **{
        f"callback's {h}": in_callback_hook(h)
        for h in ("setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start")
    },
    "callback's on_train_batch_end": in_callback_hook("on_train_batch_end"),
    "callback's on_validation_end": in_callback_hook("on_validation_end"),
    "taken back": taken_back,
    "mock.patch.object": mocked_object,
    "mock on a callback": mocked_callback,
    "mock as callback": mock_as_callback,
    **{
        f"appended in {h}": appended(h)
        for h in ("setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start")
    },
    "appended in on_train_batch_end": appended("on_train_batch_end"),
    "list of callbacks replaced": list_replaced,
    "hook on the instance": hook_on_instance,
    "validation step": validation_patched,
    **{f"stop in {h}": stops(h) for h in ("on_train_batch_start", "on_train_batch_end", "on_validation_end")},
}


@pytest.mark.feature("M-01", "K-01", "T-18")
@pytest.mark.parametrize("ours", [STRICT, RIGHT])
@pytest.mark.parametrize("case", CASES)
def test_acts_as_in_lightning(case: str, ours: str, tmp_path: Path) -> None:
    seen: dict[str, Calls] = {}
    for name in (LIGHTNING, ours):
        seen[name] = []
        with quiet():
            torch.manual_seed(0)
            CASES[case](Framework(name), tmp_path / name, seen[name])
    assert len(seen[LIGHTNING]) > 3
    assert seen[ours] == seen[LIGHTNING]
