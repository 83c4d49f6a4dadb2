"""Names of Lightning 1.x: none is passed over in silence, and with aliases on those with a successor are called."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import fulmen as L
from fulmen.engine.hooks.spec import HOOK_NAMES, OLD_HOOKS, OLD_WITH
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import MisconfigurationException
from tests.integration.toys import Toy, fit, loader, quiet

pytestmark = pytest.mark.feature("P-05")

REFUSED = {"training_epoch_end", "validation_epoch_end", "test_epoch_end"}


def nothing(self: Any, *args: Any) -> None: ...


def of_code(found: Any, code: str) -> list[str]:
    """Texts of the warnings of one code."""
    texts = [str(warning.message) for warning in found]
    return [text for text in texts if f"FULMEN-{code}" in text]


def owner_of(role: str, name: str) -> tuple[Any, dict[str, Any]]:
    """A module, data module or callback with a method of that name, and how it goes into `fit`."""
    base = {"module": Toy, "callback": L.Callback, "data": L.LightningDataModule}[role]
    return type("Mine", (base,), {name: nothing, "train_dataloader": lambda self: loader(2)})(), {}


def run(role: str, obj: Any, **kwargs: Any) -> None:
    if role == "module":
        fit(obj, loader(2), **kwargs)
    elif role == "callback":
        fit(Toy(), loader(2), callbacks=obj, **kwargs)
    else:
        fit(Toy(), obj, **kwargs)


CASES = [(role, name) for name, hook in OLD_HOOKS.items() for role in hook.owners]


@pytest.mark.parametrize(("role", "name"), CASES)
def test_each_is_one_warning_with_the_name_to_use(role: str, name: str) -> None:
    obj, _ = owner_of(role, name)
    with pytest.warns(UserWarning) as found:
        run(role, obj)
    (text,) = of_code(found, "W416")
    assert text.startswith(f"Mine.{name} is a hook of Lightning 1.x; it is never called. Use ")
    assert "FULMEN-W416" in text
    named = [word.strip("`,;.") for word in text.partition("Use ")[2].split() if word.startswith("`")]
    assert named[0] in HOOK_NAMES


def test_names_are_those_that_lightning_dropped() -> None:
    from tests.parity.frameworks import peer

    lightning = peer()
    bases = {"module": lightning.LightningModule, "callback": lightning.Callback, "data": lightning.LightningDataModule}
    for name, hook in OLD_HOOKS.items():
        assert not any(hasattr(bases[role], name) for role in hook.owners), name


def test_once_for_each_class_and_nothing_without_them() -> None:
    module, _ = owner_of("module", "on_epoch_end")
    with pytest.warns(UserWarning) as found:
        run("module", module)
        run("module", module)
    assert len(of_code(found, "W416")) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*FULMEN-W416")
        fit(Toy(), loader(2))


def test_attributes_of_that_name_that_are_no_methods() -> None:
    module = Toy()
    module.on_epoch_end = 3
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(module, loader(2))
    assert not of_code(found, "W416")


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("fn", ["fit", "validate", "test"])
def test_policy_lightning_refuses_what_lightning_refuses(name: str, fn: str) -> None:
    from tests.parity.frameworks import LIGHTNING, STRICT, Framework

    outcomes = []
    for framework in (Framework(LIGHTNING), Framework(STRICT)):
        body = {
            name: nothing,
            "training_step": lambda self, batch, batch_idx: self.layer(batch).sum(),
            "validation_step": lambda self, batch, batch_idx: None,
            "test_step": lambda self, batch, batch_idx: None,
            "configure_optimizers": lambda self: torch.optim.SGD(self.parameters(), lr=0.1),
        }
        module = type("Mine", (framework.L.LightningModule,), body)()
        module.layer = torch.nn.Linear(2, 1)
        trainer = framework.trainer(".", max_steps=1)
        data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                getattr(trainer, fn)(module, data)
            except NotImplementedError as error:
                outcomes.append(name in str(error))
            else:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    assert True in outcomes or fn != {"training_epoch_end": "fit", "test_epoch_end": "test"}.get(name, "validate")


def test_policy_field_alone() -> None:
    module, _ = owner_of("module", "training_epoch_end")
    policy = Policy.right.replace(old_epoch_end_warns=False)
    with pytest.raises(NotImplementedError, match=r"Mine\.training_epoch_end .*Use `on_train_epoch_end`"):
        run("module", module, policy=policy)
    with pytest.warns(UserWarning, match=r"Mine\.training_epoch_end"):
        run("module", module, policy=Policy.lightning.replace(old_epoch_end_warns=True))


# --- aliases on ----------------------------------------------------------------------------------------------------


def record(calls: list[str], who: str, names: list[str]) -> dict[str, Any]:
    def method(name: str) -> Any:
        return lambda self, *args: calls.append(f"{who}.{name}/{len(args)}")

    return {name: method(name) for name in names}


OLD = ["on_epoch_start", "on_epoch_end", "on_batch_start", "on_batch_end"]
OLD += ["on_pretrain_routine_start", "on_pretrain_routine_end"]
NEW = ["on_fit_start", "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end"]


@pytest.mark.filterwarnings("ignore:.*is a hook of Lightning 1.x")
def test_order_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    calls: list[str] = []
    names = [*OLD, *NEW]
    module = type("Model", (Toy,), record(calls, "m", names))()
    callback = type("Spy", (L.Callback,), record(calls, "c", names))()
    fit(module, loader(1), callbacks=callback)
    # Arguments: a callback gets trainer and module first, and the old hooks nothing else.
    assert calls == [
        "c.on_fit_start/2",
        "m.on_fit_start/0",
        "c.on_pretrain_routine_start/2",
        "m.on_pretrain_routine_start/0",
        "c.on_pretrain_routine_end/2",
        "m.on_pretrain_routine_end/0",
        "c.on_epoch_start/2",
        "m.on_epoch_start/0",
        "c.on_train_epoch_start/2",
        "m.on_train_epoch_start/0",
        "c.on_batch_start/2",
        "m.on_batch_start/0",
        "c.on_train_batch_start/4",
        "m.on_train_batch_start/2",
        "c.on_train_batch_end/5",
        "m.on_train_batch_end/3",
        "c.on_batch_end/2",
        "m.on_batch_end/0",
        "c.on_train_epoch_end/2",
        "m.on_train_epoch_end/0",
        "c.on_epoch_end/2",
        "m.on_epoch_end/0",
    ]


@pytest.mark.filterwarnings("ignore:.*is a hook of Lightning 1.x")
def test_epoch_hooks_belong_to_evaluations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    calls: list[str] = []
    module = type("Model", (Toy,), record(calls, "m", ["on_epoch_start", "on_epoch_end"]))()
    quiet().validate(module, loader(1), verbose=False)
    assert calls == ["m.on_epoch_start/0", "m.on_epoch_end/0"]


def test_without_aliases_they_are_not_called() -> None:
    calls: list[str] = []
    module = type("Model", (Toy,), record(calls, "m", OLD))()
    with pytest.warns(UserWarning, match="it is never called"):
        fit(module, loader(1))
    assert calls == []


def test_the_warning_says_that_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    module, _ = owner_of("module", "on_epoch_end")
    with pytest.warns(UserWarning, match="it is called as it was there"):
        run("module", module)
    other, _ = owner_of("callback", "on_init_end")
    with pytest.warns(UserWarning, match="it is never called"):
        run("callback", other)


@pytest.mark.filterwarnings("ignore:.*is a hook of Lightning 1.x")
def test_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    calls: list[str] = []
    callback = type("Spy", (L.Callback,), record(calls, "c", ["on_keyboard_interrupt", "on_exception"]))()

    class Model(Toy):
        error: type[BaseException] = KeyboardInterrupt

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            raise self.error

    module = Model()
    policy = Policy.right
    with pytest.raises(KeyboardInterrupt):
        fit(module, loader(2), callbacks=callback, policy=policy)
    assert calls == ["c.on_keyboard_interrupt/2", "c.on_exception/3"]
    calls.clear()
    module.error = ValueError
    with pytest.raises(ValueError):
        fit(module, loader(2), callbacks=callback, policy=policy)
    assert calls == ["c.on_exception/3"]


# --- arguments -----------------------------------------------------------------------------------------------------


def with_number(calls: list[Any], base: type) -> Any:
    if base is Toy:
        body = {"on_before_optimizer_step": lambda self, optimizer, optimizer_idx: calls.append(("m", optimizer_idx))}
    else:

        def hook(self: Any, trainer: Any, pl_module: Any, optimizer: Any, optimizer_idx: int) -> None:
            calls.append(("c", optimizer_idx))

        body = {"on_before_optimizer_step": hook}
    return type("Mine", (base,), body)()


def test_number_of_the_optimizer_with_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    calls: list[Any] = []

    class Two(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                self.manual_backward(self.loss(batch))
                optimizer.step()
                optimizer.zero_grad()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]

        def on_before_optimizer_step(self, optimizer: Any, optimizer_idx: int) -> None:
            calls.append(("m", optimizer_idx))

    fit(Two(), loader(1), callbacks=with_number(calls, L.Callback))
    assert calls == [("c", 0), ("m", 0), ("c", 1), ("m", 1)]


@pytest.mark.parametrize("base", [Toy, L.Callback])
def test_number_of_the_optimizer_without_aliases(base: type) -> None:
    obj = with_number([], base)
    words = r"Mine\.on_before_optimizer_step has the arguments \(.*optimizer_idx\); it is called with \(.*optimizer\)"
    with pytest.raises(MisconfigurationException, match=words):
        run("module" if base is Toy else "callback", obj)


def old_step(
    self: Any,
    epoch: int,
    batch_idx: int,
    optimizer: Any,
    optimizer_idx: int = 0,
    optimizer_closure: Any = None,
    on_tpu: bool = False,
    using_native_amp: bool = False,
    using_lbfgs: bool = False,
) -> None:
    optimizer.step(closure=optimizer_closure)


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("optimizer_step", old_step, r"takes 'optimizer_idx', an argument of Lightning 1\.x"),
        ("optimizer_step", lambda self, epoch, batch_idx, optimizer, optimizer_idx, c: None, "has the arguments"),
        ("lr_scheduler_step", lambda self, scheduler, optimizer_idx, metric: None, "has the arguments"),
        ("on_train_epoch_end", lambda self, outputs: None, r"has the arguments \(outputs\); it is called with \(\)"),
        ("on_train_batch_start", lambda self, batch, batch_idx, dataloader_idx: None, "has the arguments"),
        (
            "on_train_batch_end",
            lambda self, batch, batch_idx: None,
            r"has the arguments \(batch, batch_idx\); it is called with \(outputs, b",
        ),
        ("configure_gradient_clipping", lambda self, optimizer, optimizer_idx, value, how: None, "has the arguments"),
        ("backward", lambda self, loss, optimizer, optimizer_idx: None, "has the arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_told_before_training(name: str, method: Any, words: str) -> None:
    steps: list[int] = []

    class Model(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            steps.append(batch_idx)
            return self.loss(batch)

    module = type("Mine", (Model,), {name: method})()
    with pytest.raises(MisconfigurationException, match=rf"Mine\.{name} {words}"):
        fit(module, loader(2))
    assert steps == []


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("on_train_batch_start", lambda self, *args: None),
        ("on_train_batch_end", lambda self, outputs, batch, batch_idx, unused=0: None),
        ("on_validation_batch_end", lambda self, outputs, batch, batch_idx: None),
        ("on_validation_batch_end", lambda self, outputs, batch, batch_idx, dataloader_idx=0: None),
        ("on_test_epoch_end", lambda self, outputs: None),  # not called in a fit
        ("configure_gradient_clipping", lambda self, optimizer, gradient_clip_val, gradient_clip_algorithm: None),
        (
            "optimizer_step",
            lambda self, epoch, batch_idx, optimizer, optimizer_closure: optimizer.step(optimizer_closure),
        ),
        ("optimizer_step", lambda self, *args, **kwargs: args[2].step(closure=args[3])),
        ("backward", lambda self, loss, **kwargs: loss.backward()),
    ],
)
def test_arguments_that_fit(name: str, method: Any) -> None:
    assert fit(type("Mine", (Toy,), {name: method})(), loader(2)).global_step == 1


# --- keys in what a step returns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize(("key", "flags"), [("log", ""), ("progress_bar", ", prog_bar=True, logger=False")])
def test_values_returned_for_logging(key: str, flags: str, manual: bool) -> None:
    class Model(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not manual

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return {"loss": loss, key: {"train_loss": loss.detach(), "n": 3}}

    words = rf"Model\.training_step returned a dict with '{key}' \(train_loss, n\): nothing is logged.*"
    with pytest.warns(UserWarning, match=words) as found:
        fit(Model(), loader(3))
    (text,) = of_code(found, "W616")
    assert f"self.log_dict(values{flags})" in text


def test_values_returned_by_a_validation_step() -> None:
    class Model(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return {"val_loss": 1.0, "log": {"val_loss": 1.0}}

    with pytest.warns(UserWarning, match=r"Model\.validation_step returned a dict with 'log' \(val_loss\)") as found:
        quiet().validate(Model(), loader(3), verbose=False)
    assert len(found) == 1


def test_keys_of_that_name_with_other_values_are_the_users() -> None:
    class Model(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": self.loss(batch), "log": torch.ones(3)}

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(Model(), loader(2))
    assert not of_code(found, "W616")


def test_tables_agree() -> None:
    assert {old for names in OLD_WITH.values() for old in names} == {n for n, hook in OLD_HOOKS.items() if hook.calls}
    assert not set(OLD_HOOKS) & HOOK_NAMES - {"on_save_checkpoint", "on_load_checkpoint"}
