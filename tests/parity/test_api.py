"""Public names, parameters, defaults and properties are Lightning's; what is not stands in a list with its reason."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fulmen
import fulmen.callbacks
import fulmen.loggers
from tests.parity.api_table import Difference, compare_classes, compare_functions, compare_instances, shared_names
from tests.parity.frameworks import peer

# Place (a pattern for the whole of it) → why it differs. An entry that nothing needs fails.
ALLOWED: dict[str, str] = {
    # Not there yet.
    r".*\.to_(onnx|torchscript|tensorrt)": "export comes with the export room",
    r"Trainer\.profiler": "not available in this version",
    # Other objects behind the same name.
    r"TrainerState\.(fn|status)": "attributes of the object, not of the class",
    r"Trainer\.val_check_batch": "before a run: no number yet, None in Lightning",
    r"TrainerState\.__init__": "made by the Trainer alone",
    r"(SingleDevice)?Strategy\.setup_optimizers": "a core verb; Lightning's form with a trainer is routed",
    r"(SingleDevice)?Strategy\.backward": "the optimizer is the first of *args",
    r"Tqdm\.__init__": "tqdm's own arguments, by name",
    r"CustomProgress\.(add_custom_task|soft_refresh)": "internals of Lightning's rich bar",
    # More is accepted than in Lightning.
    r"(Mixed|Double|Half)?Precision\.(backward|optimizer_step)": "arguments that Lightning requires may be left out",
    r"DummyLogger\.log_(metrics|hyperparams)": "named as in Logger, where Lightning has *args",
    r"AsyncCheckpointIO\.(load|remove|save)_checkpoint": "named as in CheckpointIO, where Lightning has *args",
    r"SingleDeviceStrategy\.(barrier|reduce)": "named as in Strategy, where Lightning has *args",
    r"AsyncCheckpointIO\.checkpoint_io": "an attribute of the object, a property in Lightning",
    r"TorchCheckpointIO\.load_checkpoint": "the default device is written as 'cpu', a function in Lightning",
    # What Lightning's internals pass to each other.
    r"save_hyperparameters": "`given_hparams` is a context here (`given_hyperparameters`)",
    r"get_filesystem": "any keyword is accepted on both sides, under another name",
}

# Lightning's callbacks and loggers that are not there yet.
LATER = {
    "callbacks": {
        "BackboneFinetuning",
        "BaseFinetuning",
        "BasePredictionWriter",
        "BatchSizeFinder",
        "DeviceStatsMonitor",
        "EMAWeightAveraging",
        "LearningRateFinder",
        "ModelPruning",
        "OnExceptionCheckpoint",
        "SpikeDetection",
        "StochasticWeightAveraging",
        "ThroughputMonitor",
        "WeightAveraging",
    },
    "loggers": {"CometLogger", "LitLogger", "MLFlowLogger", "WandbLogger"},
}

# Core classes: these must be among what is compared.
CORE = {
    "Callback",
    "EarlyStopping",
    "LearningRateMonitor",
    "LightningDataModule",
    "LightningModule",
    "ModelCheckpoint",
    "ModelSummary",
    "RichModelSummary",
    "RichProgressBar",
    "TQDMProgressBar",
    "Timer",
    "Trainer",
    "seed_everything",
}

# How objects of both are made; their public attributes are compared.
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "Trainer": lambda L: L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ),
    "LightningModule": lambda L: L.LightningModule(),
    "LightningDataModule": lambda L: L.LightningDataModule(),
    "EarlyStopping": lambda L: L.callbacks.EarlyStopping("loss"),
    "GradientAccumulationScheduler": lambda L: L.callbacks.GradientAccumulationScheduler({0: 2}),
    "LambdaCallback": lambda L: L.callbacks.LambdaCallback(),
    "LearningRateMonitor": lambda L: L.callbacks.LearningRateMonitor(),
    "ModelCheckpoint": lambda L: L.callbacks.ModelCheckpoint(),
    "ModelSummary": lambda L: L.callbacks.ModelSummary(),
    "RichModelSummary": lambda L: L.callbacks.RichModelSummary(),
    "RichProgressBar": lambda L: L.callbacks.RichProgressBar(),
    "TQDMProgressBar": lambda L: L.callbacks.TQDMProgressBar(),
    "Timer": lambda L: L.callbacks.Timer(),
    "CSVLogger": lambda L: L.loggers.CSVLogger("logs"),
    "TensorBoardLogger": lambda L: L.loggers.TensorBoardLogger("logs"),
}


@pytest.fixture(scope="module")
def table() -> dict[str, list[Difference]]:
    """All differences, by the name that was compared."""
    lightning = peer()
    found: dict[str, list[Difference]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # modules of Lightning's that are deprecated say so at import
        for name, theirs, ours in shared_names():
            compared = (
                compare_classes(theirs, ours) if isinstance(theirs, type) else compare_functions(name, theirs, ours)
            )
            found.setdefault(name, []).extend(compared)
        for name, make in OBJECTS.items():
            found[name].extend(compare_instances(make(lightning), make(fulmen)))
    return found


def _reason(place: str) -> str | None:
    return next((pattern for pattern in ALLOWED if re.fullmatch(pattern, place)), None)


@pytest.mark.feature("P-02")
def test_api_is_that_of_lightning(table: dict[str, list[Difference]]) -> None:
    assert table.keys() >= CORE, "core classes are not compared"
    left = [str(d) for found in table.values() for d in found if _reason(d.place) is None]
    assert not left, "\n" + "\n".join(left)


def test_every_allowed_difference_is_one(table: dict[str, list[Difference]]) -> None:
    used = {_reason(d.place) for found in table.values() for d in found}
    assert not (unused := ALLOWED.keys() - used), f"nothing needs these entries any more: {sorted(unused)}"


@pytest.mark.feature("P-02")
@pytest.mark.parametrize("room", LATER)
def test_names_of_callbacks_and_loggers(room: str) -> None:
    theirs = set(getattr(peer(), room).__all__)
    ours = set(getattr(fulmen, room).__all__)
    assert theirs - ours == LATER[room]


# --- wrong samples: each kind of difference is found ---------------------------------------------------------------


class Peer:
    """What is compared with; its module is set below to count as Lightning's."""

    def same(self, a: int, *, b: int = 1) -> None: ...

    def renamed(self, a: int) -> None: ...

    def swapped(self, a: int, b: int) -> None: ...

    def other_default(self, a: int = 1) -> None: ...

    def other_kind(self, a: int = 1) -> None: ...

    def left_out(self, a: int, b: int = 1) -> None: ...

    def gone(self) -> None: ...

    @property
    def settable(self) -> int:
        return 1

    @settable.setter
    def settable(self, value: int) -> None: ...

    @property
    def value(self) -> int:
        return 1

    @classmethod
    def on_the_class(cls) -> None: ...

    def on_fit_start(self, trainer: Any, *args: Any) -> None: ...


class Ours:
    def same(self, a: int, *, b: int = 1, extra: int = 2) -> None: ...

    def renamed(self, x: int) -> None: ...

    def swapped(self, b: int, a: int) -> None: ...

    def other_default(self, a: int = 2) -> None: ...

    def other_kind(self, *, a: int = 1) -> None: ...

    def left_out(self, a: int) -> None: ...

    @property
    def settable(self) -> int:
        return 1

    def value(self) -> int:
        return 1

    def on_the_class(self) -> None: ...

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None: ...


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(Peer, "__module__", "lightning.pytorch.sample")
    yield [d.place for d in compare_classes(Peer, Ours)]


def test_wrong_samples_are_found(differences: list[str]) -> None:
    wrong = {"renamed", "swapped", "other_default", "other_kind", "left_out", "gone", "settable", "value"}
    assert set(differences) == {f"Peer.{name}" for name in wrong | {"on_the_class"}}


def test_objects_without_an_attribute_or_with_another_value_are_found() -> None:
    class Left:
        def __init__(self) -> None:
            self.limit, self.name, self.folder = 3, "a", "x"

    class Right:
        def __init__(self) -> None:
            self.limit, self.folder = 4, "x"

    assert [d.place for d in compare_instances(Left(), Right())] == ["Left.limit", "Left.name"]


def test_trainer_shows_no_argument_for_unknown_names() -> None:
    parameters = inspect.signature(fulmen.Trainer).parameters.values()
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
