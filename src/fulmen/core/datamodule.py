"""A data module: everything about the data of a run in one object that any module can be trained with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fulmen.core.datahooks import DataHooks
from fulmen.core.hparams import HyperparametersMixin
from fulmen.core.saving import load_module, restricted_classmethod
from fulmen.engine.hooks.spec import PREDICT, TEST, TRAIN_LOADER, VALIDATION
from fulmen.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from typing import Self

    from fulmen.types import MapLocation, PathOrStr

_LOADERS = {
    "Train dataloader": TRAIN_LOADER,
    "Validation dataloader": VALIDATION.loader,
    "Test dataloader": TEST.loader,
    "Predict dataloader": PREDICT.loader,
}


class LightningDataModule(DataHooks, HyperparametersMixin):
    """Prepares data and gives data loaders; can be shared, pickled, copied and used without a trainer.

    Args:
        *args: Accepted and not used, so that subclasses may pass theirs on.
        **kwargs: Accepted and not used.

    Attributes:
        trainer: The trainer of the run in progress, else `None`; not part of pickles and copies.
        name: A name for logs.

    Example:
        >>> class Numbers(LightningDataModule):
        ...     def setup(self, stage):
        ...         self.numbers = list(range(10))
        ...
        ...     def train_dataloader(self):
        ...         return DataLoader(self.numbers, batch_size=5)
        >>> data = Numbers()
        >>> data.setup("fit")
        >>> len(data.train_dataloader())
        2
    """

    name: str | None = None
    CHECKPOINT_HYPER_PARAMS_KEY = "datamodule_hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "datamodule_hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "datamodule_hparams_type"

    trainer: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
        predict_dataset: Any = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **datamodule_kwargs: Any,
    ) -> Self:
        """Make a data module from data sets; each becomes a `torch.utils.data.DataLoader`.

        Training sets are shuffled unless they are `IterableDataset` objects. Batches are pinned if there is a CUDA
        device.

        Args:
            train_dataset: A data set, or a list or dict of data sets.
            val_dataset: The same for validation.
            test_dataset: The same for testing.
            predict_dataset: The same for prediction.
            batch_size: Samples in a batch; also passed to the constructor if it has an argument of this name.
            num_workers: Processes that load data (0: the main process); also passed to the constructor if it has an
                argument of this name.
            **datamodule_kwargs: Further arguments of the constructor.

        Raises:
            ArgumentTypeError: A data set is none, or a number is not an integer.
            ArgumentValueError: `batch_size` or `num_workers` is too small.
        """
        where = f"{cls.__name__}.from_datasets"
        _check_number(where, "batch_size", batch_size, 1)
        _check_number(where, "num_workers", num_workers, 0)
        sets = {
            "train_dataset": train_dataset,
            "val_dataset": val_dataset,
            "test_dataset": test_dataset,
            "predict_dataset": predict_dataset,
        }
        for argument, value in sets.items():
            if value is not None:
                _check_dataset(where, argument, value)
        own = {"batch_size": batch_size, "num_workers": num_workers}
        accepted = inspect.signature(cls.__init__).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            own = {name: value for name, value in own.items() if name in accepted}
        datamodule = cls(**{**own, **datamodule_kwargs})
        for argument, value in sets.items():
            if value is not None:
                # A partial of a function of this module, not a closure: the data module can be pickled.
                make = functools.partial(_make_loaders, value, argument == "train_dataset", batch_size, num_workers)
                setattr(datamodule, f"{argument.removesuffix('set')}loader", make)
        return datamodule

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint shall keep of the data module, such as positions or shuffling state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned.

        Args:
            state_dict: As kept in the checkpoint.
        """

    def on_exception(self, exception: BaseException) -> None:
        """Clean up after the run was interrupted by an exception.

        Args:
            exception: The exception.
        """

    @restricted_classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: PathOrStr | Any,
        map_location: MapLocation = None,
        hparams_file: PathOrStr | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build the data module with the hyperparameters that a checkpoint keeps, and load its state.

        Args:
            checkpoint_path: Path, URL or an open binary file.
            map_location: As in `torch.load`.
            hparams_file: A ``.yaml`` or ``.csv`` file whose values replace the stored ones.
            weights_only: As in `torch.load`; `False` unpickles objects, which can run code of the file's author.
            **kwargs: Arguments of the constructor; they win over stored values.

        Raises:
            ArgumentTypeError: An argument is unknown or has no value; both lists are shown.
            CheckpointError: The file cannot be read or is no checkpoint.
            TypeError: It was called on an instance.
        """
        return load_module(cls, checkpoint_path, map_location, hparams_file, None, weights_only, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "trainer"}

    def __str__(self) -> str:
        """Return the sizes of the data sets, as far as the loaders are there by now."""
        return "\n".join(f"{{{label}: {_size(self, method)}}}" for label, method in _LOADERS.items())


def _check_number(where: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{where}({name}={value!r}): give an integer of at least {least}.")
    if value < least:
        raise ArgumentValueError(f"{where}({name}={value}): it must be at least {least}.")


def _check_dataset(where: str, argument: str, value: Any) -> None:
    if isinstance(value, Mapping) and not isinstance(value, Dataset):
        items: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        items = value
    elif _is_dataset(value) or isinstance(value, DataLoader):
        return
    else:
        raise ArgumentTypeError(
            f"{where}({argument}=...): found a {type(value).__name__} where a data set is expected: an object with"
            f" `__getitem__` and `__len__`, an `IterableDataset`, or a list or dict of them. Tensors can be wrapped as"
            f" `TensorDataset(x, y)`."
        )
    for item in items:
        _check_dataset(where, argument, item)


def _is_dataset(value: Any) -> bool:
    # Data sets of other libraries do not derive from torch's class.
    return isinstance(value, Dataset) or (
        hasattr(value, "__getitem__")
        and hasattr(value, "__len__")
        and not isinstance(value, str | bytes | Tensor | type)
        and type(value).__module__.partition(".")[0] != "numpy"
    )


def _make_loaders(datasets: Any, shuffle: bool, batch_size: int, num_workers: int) -> Any:
    if isinstance(datasets, DataLoader):
        return datasets
    if isinstance(datasets, Mapping) and not isinstance(datasets, Dataset):
        return {key: _make_loaders(item, shuffle, batch_size, num_workers) for key, item in datasets.items()}
    if isinstance(datasets, list | tuple):
        return [_make_loaders(item, shuffle, batch_size, num_workers) for item in datasets]
    return DataLoader(
        datasets,
        batch_size=batch_size,
        shuffle=shuffle and not isinstance(datasets, IterableDataset),
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),  # torch warns if there is nothing to pin for
    )


def _size(datamodule: Any, method: str) -> str:
    try:
        return _size_of(getattr(datamodule, method)())
    except Exception:  # there is no such loader, or it needs `setup` first
        return "None"


def _size_of(loader: Any) -> str:
    if isinstance(loader, Mapping):
        return " ; ".join(f"{key}. {_size_of(item)}" for key, item in loader.items())
    if isinstance(loader, list | tuple):
        return " ; ".join(f"{i}. {_size_of(item)}" for i, item in enumerate(loader, start=1))
    dataset = getattr(loader, "dataset", None)
    return f"size={len(dataset)}" if isinstance(dataset, Sized) else "size=NA"
