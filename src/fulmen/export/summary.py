"""What a module consists of: layers, parameters, sizes, FLOPs. Works on any `nn.Module`, with or without a Trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn
from fulmen.utilities.collections import move_data_to_device
from fulmen.utilities.seed import isolate_rng

PARAMETER_NUM_UNITS = (" ", "K", "M", "B", "T")
UNKNOWN_SIZE = "?"
LEFTOVER_PARAMS_NAME = "other params"
NOT_APPLICABLE = "n/a"
UNKNOWN_FLOPS = "-"

Context = Callable[[], contextlib.AbstractContextManager[Any]]


class LayerSummary:
    """One layer: its type, parameters, and, once its module was called, the shapes that went in and came out.

    Args:
        module: The layer. A forward hook is put on it, which takes itself off after the first call.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._in_size: str | list[Any] | None = None
        self._out_size: str | list[Any] | None = None
        self._handle: Any = None
        if not isinstance(module, torch.jit.ScriptModule):  # takes no Python hooks
            self._handle = module.register_forward_hook(self._note, with_kwargs=True)

    def _note(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        inputs = (*args, *kwargs.values())
        self._in_size = parse_batch_shape(inputs[0] if len(inputs) == 1 else inputs)
        self._out_size = parse_batch_shape(output)
        self.detach_hook()

    def detach_hook(self) -> None:
        """Take the hook off."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    @property
    def in_size(self) -> str | list[Any]:
        """Shape of the input, a list of shapes for several, ``"?"`` if the layer was not called."""
        return self._in_size or UNKNOWN_SIZE

    @property
    def out_size(self) -> str | list[Any]:
        """Shape of the output, as `in_size`."""
        return self._out_size or UNKNOWN_SIZE

    @property
    def layer_type(self) -> str:
        """Name of the layer's class."""
        return type(self._module).__name__

    @property
    def num_parameters(self) -> int:
        """Parameters in the layer, each counted once."""
        return count_parameters(self._module.parameters())

    @property
    def training(self) -> bool:
        """Whether the layer is in training mode."""
        return self._module.training

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return the layer's parameters."""
        return self._module.parameters()


class ModelSummary:
    """Layers of a module, with types, parameters, modes; with sizes and FLOPs if there is an example input.

    The example is `module.example_input_array`: a tensor, or a tuple, list or dict of arguments. It is moved to the
    module's device (through the module's own batch transfer hooks, if it has them) and sent through once, in eval mode,
    without gradients, with the random generators put back afterwards. FLOPs are counted by torch's `FlopCounterMode`.

    ``print(summary)`` shows a table. Parameters shared by several layers stand in each layer's row and count once in
    the totals; parameters of no row are ``other params``. Lazy parameters without a shape count as 0.

    Args:
        model: The module.
        max_depth: Levels of nesting to show; 0 shows none, -1 all.
        context: Makes the context in which the example is sent through (mixed precision).
        convert: Applied to the example after it was moved (input types of a precision).

    Raises:
        ArgumentTypeError: `model` is no module, or `max_depth` no whole number.
        ArgumentValueError: `max_depth` is less than -1.
    """

    def __init__(
        self,
        model: nn.Module,
        max_depth: int = 1,
        *,
        context: Context | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentTypeError(f"ModelSummary(model={type(model).__name__}): give a torch.nn.Module.")
        check_depth(max_depth, "ModelSummary")
        # A compiled module is a shell around the real one; counting inside of it would start the compiler.
        self._model: Any = getattr(model, "_orig_mod", model)
        self._max_depth = max_depth
        self._flop_counts: dict[str, dict[Any, int]] = {}
        self._example: Any = getattr(model, "example_input_array", None)
        self._layers = {name: LayerSummary(module) for name, module in self.named_modules}
        try:
            if self._example is not None and self._layers:
                self._send_example(context or contextlib.nullcontext, convert)
        finally:
            for layer in self._layers.values():
                layer.detach_hook()
        if max_depth >= 1:
            self._layers = {name: layer for name, layer in self._layers.items() if name.count(".") < max_depth}

    # ---------------------------------------------------------------------------------------------------------- layers
    def summarize(self) -> dict[str, LayerSummary]:
        """The layers that are shown, by name."""
        return dict(self._layers)

    @property
    def named_modules(self) -> list[tuple[str, nn.Module]]:
        """The layers looked at; more than are shown, where the depth is limited."""
        if self._max_depth == 0:
            return []
        if self._max_depth == 1:
            return list(self._model.named_children())
        return list(self._model.named_modules())[1:]

    @property
    def layer_names(self) -> list[str]:
        """Names of the layers shown."""
        return list(self._layers)

    @property
    def layer_types(self) -> list[str]:
        """Classes of the layers shown."""
        return [layer.layer_type for layer in self._layers.values()]

    @property
    def in_sizes(self) -> list[str | list[Any]]:
        """Shapes that went into the layers shown."""
        return [layer.in_size for layer in self._layers.values()]

    @property
    def out_sizes(self) -> list[str | list[Any]]:
        """Shapes that came out of the layers shown."""
        return [layer.out_size for layer in self._layers.values()]

    @property
    def param_nums(self) -> list[int]:
        """Parameters of the layers shown."""
        return [layer.num_parameters for layer in self._layers.values()]

    @property
    def training_modes(self) -> list[bool]:
        """Whether the layers shown are in training mode."""
        return [layer.training for layer in self._layers.values()]

    @property
    def flop_counts(self) -> dict[str, dict[Any, int]]:
        """FLOPs of the layers shown, by operator; empty without an example input."""
        root = type(self._model).__name__
        return {name: self._flop_counts.get(f"{root}.{name}", {}) for name in self._layers}

    # ---------------------------------------------------------------------------------------------------------- totals
    @property
    def total_training_modes(self) -> dict[str, int]:
        """How many modules below the root are in ``"train"`` and ``"eval"`` mode."""
        modes = [module.training for module in self._model.modules()][1:]
        return {"train": modes.count(True), "eval": modes.count(False)}

    @property
    def total_parameters(self) -> int:
        """All parameters, shared ones once."""
        return count_parameters(self._model.parameters())

    @property
    def trainable_parameters(self) -> int:
        """Parameters that need a gradient."""
        return count_parameters(p for p in self._model.parameters() if p.requires_grad)

    @property
    def total_layer_params(self) -> int:
        """Parameters that belong to any layer shown, each once."""
        return count_parameters({id(p): p for layer in self._layers.values() for p in layer.parameters()}.values())

    @property
    def model_size(self) -> float:
        """Size of all parameters in MB (1e6 bytes), by their own types."""
        return sum(p.numel() * p.element_size() for p in self._model.parameters() if not is_lazy(p)) * 1e-6

    @property
    def total_flops(self) -> int:
        """FLOPs of one forward pass of the example; 0 if they are not known: no example, or it could not be sent."""
        return sum(self._flop_counts.get("Global", {}).values())

    # --------------------------------------------------------------------------------------------------------- example
    def _send_example(self, context: Context, convert: Callable[[Any], Any] | None) -> None:
        model = self._model
        modes = [(module, module.training) for module in model.modules()]
        try:
            with isolate_rng():
                # Imported here: it pulls in torch's compiler, which costs a second.
                from torch.utils.flop_counter import FlopCounterMode

                example = _on_device(model, self._example)
                if convert is not None:
                    example = convert(example)
                counter = FlopCounterMode(display=False)
                for module, _ in modes:
                    module.training = False
                with torch.no_grad(), context(), counter:
                    _call(model, example)
                self._flop_counts = counter.get_flop_counts()
        except Exception as error:
            warn(
                "W063",
                f"Sizes and FLOPs are missing in the model summary: {type(model).__name__}'s `example_input_array` "
                f"could not be sent through `forward` ({type(error).__name__}: {error}). Correct it, or "
                f"set it to None.",
                key=type(model).__qualname__,
                stacklevel=4,
            )
        finally:
            for module, training in modes:
                module.training = training

    # ----------------------------------------------------------------------------------------------------------- table
    def columns(self) -> list[tuple[str, list[str]]]:
        """Return the table: pairs of a column's title and its cells."""
        counted = [get_human_readable_count(sum(counts.values())) for counts in self.flop_counts.values()]
        columns = [
            (" ", [str(i) for i in range(len(self._layers))]),
            ("Name", self.layer_names),
            ("Type", self.layer_types),
            ("Params", [get_human_readable_count(n) for n in self.param_nums]),
            ("Mode", ["train" if training else "eval" for training in self.training_modes]),
            ("FLOPs", counted if self._flop_counts else [UNKNOWN_FLOPS] * len(counted)),
        ]
        if self._example is not None:
            columns.append(("In sizes", [str(size) for size in self.in_sizes]))
            columns.append(("Out sizes", [str(size) for size in self.out_sizes]))
        leftover = self.total_parameters - self.total_layer_params
        if leftover > 0 and self._layers:
            known = {" ": " ", "Name": LEFTOVER_PARAMS_NAME, "Params": get_human_readable_count(leftover)}
            for title, cells in columns:
                cells.append(known.get(title, NOT_APPLICABLE))
        return columns

    def __str__(self) -> str:
        return format_table(
            self.columns(),
            total_lines(
                self.total_parameters,
                self.trainable_parameters,
                self.model_size,
                self.total_training_modes,
                self.total_flops,
            ),
        )

    __repr__ = __str__


def summarize(lightning_module: nn.Module, max_depth: int = 1) -> ModelSummary:
    """Return the summary of a module; see `ModelSummary`.

    Args:
        lightning_module: Any `nn.Module` (the name is Lightning's).
        max_depth: Levels of nesting to show; 0 shows none, -1 all.
    """
    return ModelSummary(lightning_module, max_depth=max_depth)


def check_depth(max_depth: object, where: str) -> None:
    """Raise unless `max_depth` is a whole number from -1 on."""
    if isinstance(max_depth, bool) or not isinstance(max_depth, int):
        raise ArgumentTypeError(f"{where}(max_depth={max_depth!r}): give a whole number, or -1 for all levels.")
    if max_depth < -1:
        raise ArgumentValueError(f"{where}(max_depth={max_depth!r}): `max_depth` can be -1 (all), 0 (none) or more.")


def is_lazy(parameter: Tensor) -> bool:
    """Whether a parameter has no shape yet."""
    return isinstance(parameter, UninitializedParameter)


def count_parameters(parameters: Iterable[Tensor]) -> int:
    """Return the number of elements; lazy parameters count as 0, with one warning."""
    total = 0
    for parameter in parameters:
        if is_lazy(parameter):
            warn(
                "W064",
                "The number of parameters leaves out lazy ones, which have no shape yet. Set `example_input_array` on "
                "the module to have them made before they are counted.",
                stacklevel=4,
            )
        else:
            total += parameter.numel()
    return total


def parse_batch_shape(batch: Any) -> str | list[Any]:
    """Return the shape as a list, a list of shapes for lists and tuples, ``"?"`` for all else."""
    if hasattr(batch, "shape"):
        return list(batch.shape)
    if isinstance(batch, (list, tuple)):
        return [parse_batch_shape(item) for item in batch]
    return UNKNOWN_SIZE


def get_human_readable_count(number: int) -> str:
    """Write a whole number in thousands: ``123``, ``1.2 K``, ``132 K``, ``2.0 M``, ``5,000 T``.

    Raises:
        ArgumentValueError: A negative number.
    """
    if number < 0:
        raise ArgumentValueError(f"get_human_readable_count({number}): give 0 or more.")
    whole = int(number)
    group = min((len(str(whole)) - 1) // 3, len(PARAMETER_NUM_UNITS) - 1)
    value = number / 1000**group
    if group == 0 or value >= 100:
        return f"{int(value):,d} {PARAMETER_NUM_UNITS[group]}"
    return f"{value:,.1f} {PARAMETER_NUM_UNITS[group]}"


def get_formatted_model_size(total_model_size: float) -> str:
    """Write megabytes with three digits after the point."""
    return f"{total_model_size:,.3f}"


def total_lines(
    total_parameters: int,
    trainable_parameters: int,
    model_size: float,
    total_training_modes: dict[str, int],
    total_flops: int,
) -> list[tuple[str, str]]:
    """Return value and label of each line below the table; `total_flops` of 0 are unknown ones."""
    return [
        (get_human_readable_count(trainable_parameters), "Trainable params"),
        (get_human_readable_count(total_parameters - trainable_parameters), "Non-trainable params"),
        (get_human_readable_count(total_parameters), "Total params"),
        (get_formatted_model_size(model_size), "Total estimated model params size (MB)"),
        (str(total_training_modes["train"]), "Modules in train mode"),
        (str(total_training_modes["eval"]), "Modules in eval mode"),
        (get_human_readable_count(total_flops) if total_flops else UNKNOWN_FLOPS, "Total FLOPs"),
    ]


def format_table(columns: list[tuple[str, list[str]]], totals: list[tuple[str, str]]) -> str:
    """Write columns and lines below them as text."""
    widths = [max([len(title), *map(len, cells)]) for title, cells in columns]
    rule = "-" * (sum(widths) + 3 * (len(columns) + 1))
    rows = [[title for title, _ in columns], *zip(*(cells for _, cells in columns), strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], rule, *lines[1:], rule, *(f"{value:<10}{label}" for value, label in totals)])


def _on_device(model: Any, example: Any) -> Any:
    """Do with the example what is done with a batch: the module's own hooks, or a plain move to its device."""
    try:
        before, transfer, after = (
            model.on_before_batch_transfer,
            model.transfer_batch_to_device,
            model.on_after_batch_transfer,
        )
    except AttributeError:
        tensor = next(iter([*model.parameters(), *model.buffers()]), None)
        return example if tensor is None else move_data_to_device(example, tensor.device)
    return after(transfer(before(example, 0), model.device, 0), 0)


def _call(model: Any, example: Any) -> None:
    if isinstance(example, dict):
        model(**example)
    elif isinstance(example, (list, tuple)):
        model(*example)
    else:
        model(example)
