"""Aliases switched on in processes of their own."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.unit.compat.processes import answers, python


def _words(text: str) -> list[str]:
    return text.split()


# What real libraries import (their sources, September 2026), as far as it is there; the rest must say that it is not.
IMPORTS = _words("""
lightning.__version__
lightning.pytorch.__version__
lightning.pytorch.Trainer
lightning.pytorch.LightningModule
lightning.pytorch.LightningDataModule
lightning.pytorch.Callback
lightning.pytorch.seed_everything
lightning.pytorch.accelerators.Accelerator
lightning.pytorch.accelerators.cuda.CUDAAccelerator
lightning.pytorch.callbacks.Callback
lightning.pytorch.callbacks.EarlyStopping
lightning.pytorch.callbacks.LearningRateMonitor
lightning.pytorch.callbacks.ModelCheckpoint
lightning.pytorch.callbacks.ProgressBar
lightning.pytorch.callbacks.RichProgressBar
lightning.pytorch.callbacks.TQDMProgressBar
lightning.pytorch.callbacks.early_stopping.EarlyStopping
lightning.pytorch.callbacks.gradient_accumulation_scheduler.GradientAccumulationScheduler
lightning.pytorch.callbacks.progress.tqdm_progress.Tqdm
lightning.pytorch.core.datamodule.LightningDataModule
lightning.pytorch.core.mixins.HyperparametersMixin
lightning.pytorch.core.saving.get_filesystem
lightning.pytorch.loggers.CSVLogger
lightning.pytorch.loggers.Logger
lightning.pytorch.loggers.TensorBoardLogger
lightning.pytorch.loggers.logger.Logger
lightning.pytorch.loggers.logger.rank_zero_experiment
lightning.pytorch.strategies.Strategy
lightning.pytorch.trainer.states.RunningStage
lightning.pytorch.utilities.exceptions.MisconfigurationException
lightning.pytorch.utilities.model_summary.summarize
lightning.pytorch.utilities.parsing.AttributeDict
lightning.pytorch.utilities.parsing.get_init_args
lightning.pytorch.utilities.rank_zero.rank_prefixed_message
lightning.pytorch.utilities.rank_zero.rank_zero_only
lightning.pytorch.utilities.rank_zero_only
lightning.pytorch.utilities.types.STEP_OUTPUT
lightning.pytorch.utilities.warnings.PossibleUserWarning
lightning.fabric.plugins.io.torch_io.TorchCheckpointIO
lightning.fabric.utilities.data.AttributeDict
lightning.fabric.utilities.seed.seed_everything
lightning.fabric.utilities.types._MAP_LOCATION_TYPE
lightning.fabric.utilities.types._PATH
""")
PERHAPS_ABSENT = _words("""
lightning.Fabric
lightning.pytorch.callbacks.BasePredictionWriter
lightning.pytorch.callbacks.LearningRateFinder
lightning.pytorch.strategies.DDPStrategy
lightning.pytorch.strategies.ddp.DDPStrategy
lightning.pytorch.trainer.connectors.accelerator_connector._AcceleratorConnector
lightning.pytorch.tuner.Tuner
lightning.pytorch.tuner.tuning.Tuner
""")

ON = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from fulmen.compat import install_aliases, uninstall_aliases, aliases_installed
    install_aliases()
    install_aliases()
said["warned"] = [[str(w.message), w.category.__name__, w.filename] for w in caught]
"""

FACTS = (
    ON
    + """
import importlib, importlib.metadata, importlib.util, os, sys
said["torch"] = "torch" in sys.modules
said["path"] = [sys.path[0], os.environ["PYTHONPATH"].split(os.pathsep)[0], os.environ["FULMEN_COMPAT"]]
said["versions"] = {n: importlib.metadata.version(n) for n in ("lightning", "pytorch-lightning", "lightning-fabric")}
import lightning, lightning.pytorch as long, pytorch_lightning as pl, lightning_fabric, lightning.fabric, fulmen
said["files"] = [m.__file__ for m in (lightning, pl, lightning_fabric)]
said["spellings"] = {}
def find(dotted):
    module, _, name = dotted.rpartition(".")
    scope = {}
    exec(f"from {module} import {name} as found", scope)
    return scope["found"]
said["imports"] = {}
for dotted in IMPORTS + PERHAPS_ABSENT:
    try:
        found = find(dotted)
    except ImportError as error:
        said["imports"][dotted] = f"{type(error).__name__}: {error}"
        continue
    short = dotted.replace("lightning.pytorch", "pytorch_lightning").replace("lightning.fabric", "lightning_fabric")
    same = find(short) == found if isinstance(found, str) else find(short) is found
    said["imports"][dotted] = "same" if same else "differs"
said["is"] = [
    long.callbacks.EarlyStopping is pl.callbacks.EarlyStopping is fulmen.callbacks.EarlyStopping,
    pl.Trainer is lightning.Trainer is fulmen.Trainer is long.trainer.Trainer,
    lightning_fabric.seed_everything is lightning.fabric.seed_everything is fulmen.seed_everything,
    pl.callbacks.early_stopping.EarlyStopping is fulmen.callbacks.EarlyStopping,
    long.utilities.rank_zero_only is fulmen.utilities.rank_zero_only,
]
import lightning.pytorch.demos.boring_classes
said["modules"] = {k.__name__: k.__module__ for k in (
    pl.Trainer, pl.LightningModule, pl.LightningDataModule, pl.Callback, pl.callbacks.ModelCheckpoint,
    pl.callbacks.RichProgressBar, pl.loggers.CSVLogger, pl.strategies.SingleDeviceStrategy,
    pl.utilities.exceptions.MisconfigurationException, pl.utilities.warnings.PossibleUserWarning,
    pl.trainer.states.RunningStage, pl.plugins.MixedPrecision, lightning.fabric.plugins.TorchCheckpointIO,
    long.demos.boring_classes.BoringModel, long.core.hooks.DataHooks, pl.plugins.environments.LightningEnvironment,
    long.utilities.AttributeDict,
)}
said["errors"] = {}
for code in (
    "from lightning.pytorch.callbacks import EarlyStoping",
    "import pytorch_lightning.calbacks",
    "from lightning.pytorch.callbacks.early_stopping import Nothing",
    "lightning.pytorch.Trainr",
):
    try:
        exec(code)
    except Exception as error:
        said["errors"][code] = [type(error).__name__, str(error)]
said["asked"] = [importlib.util.find_spec("lightning.pytorch.calbacks"), hasattr(lightning, "Trainr")]
said["star"] = sorted(set(long.callbacks.__all__) - set(dir(long.callbacks)))
quiet = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = pl.Trainer(max_epochs=1, limit_train_batches=2, limit_val_batches=1, **quiet)
said["policy"] = [trainer.policy == fulmen.Policy.lightning, fulmen.Policy.right == fulmen.Policy.lightning]
trainer.fit(long.demos.boring_classes.BoringModel())
said["steps"] = trainer.global_step

uninstall_aliases()
uninstall_aliases()
said["off"] = {
    "on": aliases_installed(),
    "path": [p for p in sys.path if "compat" in p],
    "environment": [os.environ.get("PYTHONPATH"), os.environ.get("FULMEN_COMPAT")],
    "modules": [m for m in sys.modules if m.split(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric")],
    "finders": [f for f in map(str, sys.meta_path) if "fulmen" in f],
    "trainer": pl.Trainer.__module__,
    "policy": fulmen.Trainer(**quiet).policy == fulmen.Policy.right,
}
"""
)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return answers(f"IMPORTS = {IMPORTS}\nPERHAPS_ABSENT = {PERHAPS_ABSENT}\n{FACTS}")


@pytest.mark.feature("P-01")
def test_path_versions_and_files(facts: dict[str, Any]) -> None:
    folder = facts["path"][0]
    assert folder.endswith(os.path.join("fulmen", "compat", "path"))
    assert facts["path"] == [folder, folder, "strict"]
    assert set(facts["versions"].values()) == {"2.6.6"}
    assert all(file.startswith(folder) for file in facts["files"])
    assert not facts["torch"], "switching the aliases on should import nothing heavy"


@pytest.mark.feature("P-01", "P-02")
def test_what_real_libraries_import_is_there(facts: dict[str, Any]) -> None:
    assert {name: facts["imports"][name] for name in IMPORTS if facts["imports"][name] != "same"} == {}
    for name in PERHAPS_ABSENT:
        found = facts["imports"][name]
        assert found == "same" or "is not in this version of Fulmen" in found


@pytest.mark.feature("P-01")
def test_one_object_under_all_spellings(facts: dict[str, Any]) -> None:
    assert facts["is"] == [True] * 5
    assert facts["star"] == []


@pytest.mark.feature("P-01", "P-08")
def test_classes_report_their_lightning_modules(facts: dict[str, Any]) -> None:
    import importlib

    with warnings.catch_warnings():  # of the peer's own import
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning.pytorch.demos.boring_classes")
    # The real package in this process tells what its classes of these names report.
    for name, module in facts["modules"].items():
        if name != "AttributeDict":  # darts admits one name of two
            assert getattr(importlib.import_module(module), name).__module__ == module
    assert facts["modules"]["AttributeDict"] == "lightning_fabric.utilities.data"
    assert facts["modules"]["ModelCheckpoint"] == "lightning.pytorch.callbacks.model_checkpoint"


@pytest.mark.feature("P-01")
def test_what_is_absent_says_so(facts: dict[str, Any]) -> None:
    errors = facts["errors"]
    assert len(errors) == 4
    kinds = [kind for kind, _ in errors.values()]
    assert kinds == ["ImportError", "ModuleNotFoundError", "ImportError", "AttributeError"]
    assert all("is not in this version of Fulmen" in text for _, text in errors.values())
    hints = [text.partition("Did you mean ")[2] for _, text in errors.values()]
    assert hints == ["'EarlyStopping'?", "'callbacks'?", "", "'Trainer'?"]
    assert facts["asked"] == [None, False]


@pytest.mark.feature("P-01")
def test_trainers_follow_lightnings_policy(facts: dict[str, Any]) -> None:
    assert facts["policy"] == [True, False]
    assert facts["steps"] == 2


@pytest.mark.feature("P-01")
def test_switching_off_restores_everything(facts: dict[str, Any]) -> None:
    from tests.unit.compat.processes import ROOT

    assert facts["off"] == {
        "on": False,
        "path": [],
        "environment": [str(ROOT / "src"), None],
        "modules": [],
        "finders": [],
        "trainer": "fulmen.trainer.trainer",
        "policy": True,
    }


@pytest.mark.feature("P-01")
def test_shadowed_package_is_announced_once(facts: dict[str, Any]) -> None:
    pytest.importorskip("lightning")
    ((text, category, file),) = facts["warned"]
    assert "lightning and lightning_fabric and pytorch_lightning are installed too" in text
    assert text.endswith("[FULMEN-W701]")
    assert category == "FulmenWarning"
    assert file == "<string>", "the warning should point at the caller"


@pytest.mark.feature("P-01")
def test_nothing_to_shadow_nothing_to_say(tmp_path: Path) -> None:
    """Without site-packages (`-S`), only Fulmen is found."""
    code = f"said = {{}}\n{ON}\nassert said['warned'] == [], said\nassert aliases_installed()"
    python("-S", "-c", code)


SPAWN = """
import multiprocessing, pickle, sys
import lightning.pytorch as pl
from pytorch_lightning.callbacks import EarlyStopping

def child(payload, queue):
    import importlib.metadata, os, subprocess
    import lightning, fulmen
    got = pickle.loads(payload)
    quiet = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    grandchild = "import lightning; print(lightning.Trainer.__module__, lightning.__file__)"
    said = subprocess.run([sys.executable, "-c", grandchild], capture_output=True, text=True).stdout
    alone = "import fulmen; print(fulmen.Trainer(accelerator='cpu', logger=False).policy == fulmen.Policy.lightning)"
    queue.put([
        type(got) is fulmen.callbacks.EarlyStopping is lightning.pytorch.callbacks.EarlyStopping,
        type(got).__module__, importlib.metadata.version("lightning"), lightning.__file__,
        pl.Trainer(**quiet).policy == fulmen.Policy.lightning, said,
        subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True).stdout,
    ])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(pickle.dumps(EarlyStopping("val")), queue))
    process.start()
    print(*queue.get(timeout=60), sep="|", end="|")
    print(*sys.argv[1:], sys.path[1] == __file__.rpartition("/")[0], __name__, sep="|")
    process.join()
"""


@pytest.mark.feature("P-01")
def test_spawned_and_started_processes_have_the_aliases(tmp_path: Path) -> None:
    script = tmp_path / "program" / "spawns.py"
    script.parent.mkdir()
    script.write_text(SPAWN)
    said = python("-W", "ignore", "-m", "fulmen.compat", script, "--lr", "3").stdout.strip().split("|")
    same, module, version, file, policy, grandchild, alone, *rest = said
    assert (same, module, version, policy) == ("True", "lightning.pytorch.callbacks.early_stopping", "2.6.6", "True")
    assert file.endswith("compat/path/lightning/__init__.py")
    assert grandchild.split()[0] == "lightning.pytorch.trainer.trainer"
    assert grandchild.split()[1] == file
    assert alone.strip() == "True", "a started process that imports only fulmen should follow the policy too"
    assert rest == ["--lr", "3", "True", "__main__"]


@pytest.mark.feature("P-01")
def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys, lightning; print(lightning.__file__, sys.argv[1:], __name__)")
    quiet = ("-W", "ignore", "-m", "fulmen.compat")
    said = python(*quiet, "-m", "program", "-x").stdout
    assert "compat/path/lightning" in said
    assert said.strip().endswith("['-x'] __main__")
    for arguments, code, words in (
        ([], 2, "usage: python -m fulmen.compat script.py"),
        (["--help"], 0, "usage: python -m fulmen.compat script.py"),
        (["nothing.py"], 2, "there is no file 'nothing.py'"),
        (["-m"], 2, "-m needs the name of a module"),
    ):
        done = python(*quiet, *arguments, check=False)
        assert done.returncode == code
        assert words in done.stdout + done.stderr
    (tmp_path / "fails.py").write_text("import sys; sys.exit(7)")
    assert python(*quiet, "fails.py", check=False).returncode == 7


@pytest.mark.feature("P-01")
def test_pytest_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import lightning\nCONFTEST = lightning.Trainer\n")
    (tmp_path / "test_it.py").write_text(
        "import conftest, fulmen, lightning.pytorch as pl, logging\n"
        "def test_it(caplog):\n"
        "    assert pl.Trainer is fulmen.Trainer is conftest.CONFTEST\n"
        "    with caplog.at_level(logging.INFO, 'lightning.pytorch'):\n"
        "        pl.seed_everything(3)\n"
        "    assert [r.name for r in caplog.records] == ['lightning.pytorch.utilities.rank_zero']\n"
    )
    done = python("-m", "pytest", "-q", "-p", "fulmen.compat.pytest", "-p", "no:cacheprovider", tmp_path)
    assert "1 passed" in done.stdout


# The rules of darts' safe loading: which names a pickle may bring.
SAFE = """
import enum, importlib, io, pickle, sys
import pytorch_lightning as pl
class Safe(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "lightning_fabric.utilities.data" and name == "AttributeDict":
            return super().find_class(module, name)
        if module in ("builtins", "collections", "torch.storage", "torch._utils", "datetime"):
            return super().find_class(module, name)
        if not module.startswith(("pytorch_lightning.", "lightning.", "lightning_fabric.")):
            raise pickle.UnpicklingError(f"{module}.{name} is not admitted")
        found = getattr(importlib.import_module(module), name)
        if not issubclass(found, (pl.Callback, enum.Enum)):
            raise pickle.UnpicklingError(f"{module}.{name} is no callback")
        return found
"""


@pytest.mark.feature("P-01")
def test_callbacks_and_attribute_dicts_pass_a_safe_loader() -> None:
    said = answers(
        ON
        + SAFE
        + """
import fulmen, torch
from fulmen.callbacks.early_stopping import EarlyStoppingReason
values = [
    pl.callbacks.EarlyStopping("val", patience=7), pl.callbacks.ModelCheckpoint(monitor="val", save_top_k=2),
    pl.callbacks.TQDMProgressBar(refresh_rate=9), pl.callbacks.Timer(duration={"minutes": 1}),
    pl.callbacks.LearningRateMonitor("step"), list(EarlyStoppingReason)[0],
    pl.utilities.AttributeDict(lr=0.1, inner=pl.utilities.AttributeDict(x=1)),
]
back = [Safe(io.BytesIO(pickle.dumps(value))).load() for value in values]
said["types"] = [type(b) is type(v) for b, v in zip(back, values)]
said["state"] = [back[0].patience, back[1].save_top_k, back[2].refresh_rate, back[6].inner.x]
try:
    Safe(io.BytesIO(pickle.dumps(pl.LightningModule()))).load()
except pickle.UnpicklingError as error:
    said["refused"] = str(error)
uninstall_aliases()
try:
    Safe(io.BytesIO(pickle.dumps(values[0]))).load()
except pickle.UnpicklingError as error:
    said["off"] = str(error)
"""
    )
    assert said["types"] == [True] * 7
    assert said["state"] == [7, 2, 9, 1]
    assert "is not admitted" in said["refused"] or "is no callback" in said["refused"]
    assert said["off"] == "fulmen.callbacks.early_stopping.EarlyStopping is not admitted"


@pytest.mark.feature("P-01")
def test_checkpoints_are_plain_and_read_on_both_sides(tmp_path: Path) -> None:
    """Written with aliases on; read by torch alone, and by Fulmen with aliases off."""
    writer = (
        ON
        + f"""
import lightning as L
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
class Model(BoringModel):
    def __init__(self, config=None):
        super().__init__()
        self.save_hyperparameters()
    def training_step(self, batch, batch_idx):
        loss = self.step(batch)
        self.log("loss", loss)
        return loss
config = L.pytorch.utilities.AttributeDict(width=3, inner=L.pytorch.utilities.AttributeDict(x=1))
for steps in (2, 4):
    callbacks = [EarlyStopping("loss", check_on_train_epoch_end=True), ModelCheckpoint({str(tmp_path)!r}, "{{step}}")]
    trainer = L.Trainer(accelerator="cpu", max_steps=steps, logger=False, enable_progress_bar=False,
        limit_val_batches=0, enable_model_summary=False, default_root_dir={str(tmp_path)!r}, callbacks=callbacks)
    trainer.fit(Model(config), ckpt_path={str(tmp_path / "step=2.ckpt")!r} if steps == 4 else None)
said["steps"] = trainer.global_step
weights_only = {str(tmp_path / "weights.ckpt")!r}
trainer.save_checkpoint(weights_only, weights_only=True)
"""
    )
    assert answers(writer)["steps"] == 4
    reader = f"""
import torch
whole = torch.load({str(tmp_path / "step=4.ckpt")!r}, weights_only=True)
light = torch.load({str(tmp_path / "weights.ckpt")!r}, weights_only=True)
said["width"] = [c["hyper_parameters"]["config"]["width"] for c in (whole, light)]
said["callbacks"] = sorted(whole["callbacks"])
from fulmen.demos.boring_classes import BoringModel
import fulmen as L
class Model(BoringModel):
    def __init__(self, config=None):
        super().__init__()
        self.save_hyperparameters()
    def training_step(self, batch, batch_idx):
        loss = self.step(batch)
        self.log("loss", loss)
        return loss
model = Model.load_from_checkpoint({str(tmp_path / "step=4.ckpt")!r})
said["loaded"] = model.hparams.config["inner"]["x"]
trainer = L.Trainer(accelerator="cpu", max_steps=6, logger=False, enable_progress_bar=False, limit_val_batches=0,
    enable_model_summary=False, default_root_dir={str(tmp_path)!r},
    callbacks=[L.callbacks.EarlyStopping("loss", check_on_train_epoch_end=True)])
trainer.fit(model, ckpt_path={str(tmp_path / "step=4.ckpt")!r})
said["steps"] = trainer.global_step
"""
    said = answers(reader)
    assert said["width"] == [3, 3]
    assert [key.partition("{")[0] for key in said["callbacks"]] == ["EarlyStopping", "ModelCheckpoint"]
    assert said["loaded"] == 1
    assert said["steps"] == 6
