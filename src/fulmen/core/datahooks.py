"""The hooks around data that modules and data modules share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from fulmen.errors import MisconfigurationException
from fulmen.utilities.collections import move_data_to_device

if TYPE_CHECKING:
    import torch


class DataHooks:
    """Hooks that prepare data, give data loaders and move batches.

    Attributes:
        prepare_data_per_node: Whether `prepare_data` is called once on every node (else once in the whole run).
        allow_zero_length_dataloader_with_multiple_devices: Whether a rank may have an empty data loader.
    """

    # On the class, so that they are there whether or not a subclass calls `super().__init__()`.
    prepare_data_per_node: bool = True
    allow_zero_length_dataloader_with_multiple_devices: bool = False

    def prepare_data(self) -> None:
        """Download or preprocess data; called in one process only, so set no attributes here (`setup` may)."""

    def setup(self, stage: str) -> None:
        """Build data sets and layers that depend on the data; called in every process.

        Args:
            stage: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
        """

    def teardown(self, stage: str) -> None:
        """Release what `setup` has made; called in every process.

        Args:
            stage: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
        """

    def train_dataloader(self) -> Any:
        """Return the loader of training batches: an iterable, or a list or dict of them to read in parallel."""
        self._has_no("train_dataloader", "fit")

    def val_dataloader(self) -> Any:
        """Return the loader of validation batches: an iterable, or a list or dict of them to read in turn."""
        self._has_no("val_dataloader", "validate")

    def test_dataloader(self) -> Any:
        """Return the loader of test batches: an iterable, or a list or dict of them to read in turn."""
        self._has_no("test_dataloader", "test")

    def predict_dataloader(self) -> Any:
        """Return the loader of batches to predict: an iterable, or a list or dict of them to read in turn."""
        self._has_no("predict_dataloader", "predict")

    def _has_no(self, hook: str, verb: str) -> NoReturn:
        raise MisconfigurationException(
            f"{type(self).__name__} has no `{hook}`: define it and return a data loader, or give loaders to"
            f" `trainer.{verb}(...)`."
        )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the batch, changed at will, before it is moved to the device.

        Args:
            batch: As the loader gave it.
            dataloader_idx: Position of the loader.
        """
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Return the batch on the device; override it for types that `move_data_to_device` does not know.

        Args:
            batch: Tensors, objects with a method ``to``, or collections of them.
            device: The device that runs the step.
            dataloader_idx: Position of the loader.
        """
        return move_data_to_device(batch, device)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the batch, changed at will, after it was moved to the device.

        Args:
            batch: On the device.
            dataloader_idx: Position of the loader.
        """
        return batch
