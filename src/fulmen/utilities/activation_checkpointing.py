"""Activation checkpointing: forget what a block computed, and compute it again when its gradients are needed.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), through `torch.utils.checkpoint`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest

M = TypeVar("M", bound=nn.Module)

# What a class with checkpointing remembers: the class that it was made of, and how.
_MARK = "_fulmen_checkpointing"
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclasses.dataclass(frozen=True)
class _Settings:
    preserve_rng_state: bool
    offload_to_cpu: bool
    use_reentrant: bool
    # Whether the block has layers with running statistics, which computing again would update once more.
    has_statistics: bool = False


def checkpoint_activations(
    module: nn.Module,
    select: Any = None,
    preserve_rng_state: bool = True,
    offload_to_cpu: bool = False,
    use_reentrant: bool = False,
) -> list[str]:
    """Checkpoint the activations of some submodules, in place: less memory, the same gradients, a third more time.

    Names of parameters and modules, and `isinstance`, stay as they are, so that checkpoints fit with and without it.
    To be called in `__init__` or `configure_model`, before the strategy wraps or shards the model; a second call
    changes the settings. Running statistics (batch norm) are updated once per step, as without it; other buffers that
    a block's `forward` changes are changed twice. Nothing is checkpointed while gradients are off.

    Args:
        module: Its submodules are looked through, from the outside in; what is inside of a chosen one is left alone.
        select: Which: a class or a tuple of classes; a name or a list of names, wildcards allowed
            (``"encoder.layers.*"``); a function of a submodule that returns a bool; or `None` for the repeated blocks:
            the outermost submodules of one class, two or more side by side, that have submodules themselves.
        preserve_rng_state: Give the second computation the random numbers of the first, so that dropout is the same.
        offload_to_cpu: Keep the inputs of the blocks in the host's memory until they are needed.
        use_reentrant: Which of torch's two implementations is used, see `torch.utils.checkpoint.checkpoint`; the
            reentrant one takes no keyword arguments, and needs an input that requires gradients.

    Returns:
        The names of the submodules chosen, in order.

    Raises:
        ArgumentTypeError: An argument is of another type.
        ArgumentValueError: Nothing was chosen, or a submodule cannot be checkpointed (compiled by TorchScript, or with
            a `forward` of its own on the object).
    """
    where = "checkpoint_activations"
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"{where}(module={type(module).__name__}): give a torch.nn.Module.")
    settings = _settings(where, preserve_rng_state, offload_to_cpu, use_reentrant)
    chosen = dict(_repeated(module, "") if select is None else _matching(module, _condition(select, where)))
    if not chosen:
        raise ArgumentValueError(_nothing_chosen(module, select, where))
    for name, block in chosen.items():
        _refuse(block, f"{where}: {name!r}")
    for block in chosen.values():
        _wrap(block, settings)
    return list(chosen)


def checkpoint_wrapper(
    module: M, offload_to_cpu: bool = False, preserve_rng_state: bool = True, use_reentrant: bool = False
) -> M:
    """Checkpoint the activations of one module and return it; `checkpoint_activations` for several.

    Takes the arguments of FairScale's function of this name. torch's wraps the module into another one.

    Args:
        module: The module; it is changed in place.
        offload_to_cpu: Keep its inputs in the host's memory until they are needed.
        preserve_rng_state: Give the second computation the random numbers of the first.
        use_reentrant: Which of torch's two implementations is used.

    Raises:
        ArgumentTypeError: An argument is of another type.
        ArgumentValueError: The module cannot be checkpointed.
    """
    where = "checkpoint_wrapper"
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"{where}(module={type(module).__name__}): give a torch.nn.Module.")
    settings = _settings(where, preserve_rng_state, offload_to_cpu, use_reentrant)
    _refuse(module, where)
    _wrap(module, settings)
    return module


def is_checkpointed(module: nn.Module) -> bool:
    """Return whether a module's activations are checkpointed by `checkpoint_activations` or `checkpoint_wrapper`."""
    return hasattr(type(module), _MARK)


def _settings(where: str, preserve_rng_state: Any, offload_to_cpu: Any, use_reentrant: Any) -> _Settings:
    given = {
        "preserve_rng_state": preserve_rng_state,
        "offload_to_cpu": offload_to_cpu,
        "use_reentrant": use_reentrant,
    }
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ArgumentTypeError(f"{where}({name}={value!r}): must be True or False.")
    return _Settings(**given)


# --- which -----------------------------------------------------------------------------------------------------------


def _condition(select: Any, where: str) -> Callable[[str, nn.Module], bool]:
    kinds = select if isinstance(select, tuple) else (select,)
    if kinds and all(isinstance(kind, type) for kind in kinds):
        for kind in kinds:
            if not issubclass(kind, nn.Module):
                raise ArgumentTypeError(
                    f"{where}(select={kind.__name__}): {kind.__name__} is no torch.nn.Module class."
                )
        return lambda name, block: isinstance(block, kinds)
    names = [select] if isinstance(select, str) else select
    if isinstance(names, list | tuple | set | frozenset) and names and all(isinstance(n, str) for n in names):
        return lambda name, block: any(fnmatch.fnmatchcase(name, pattern) for pattern in names)
    if callable(select):
        return lambda name, block: bool(select(block))
    raise ArgumentTypeError(
        f"{where}(select={select!r}): give a class or a tuple of classes, a name or a list of names, a function of a"
        f" module, or None for the repeated blocks."
    )


def _matching(
    module: nn.Module, chosen: Callable[[str, nn.Module], bool], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, child in module.named_children():
        if chosen(prefix + name, child):
            yield prefix + name, child
        else:
            yield from _matching(child, chosen, f"{prefix}{name}.")


def _repeated(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The outermost submodules of one class, two or more of them side by side, that have submodules themselves."""
    children = list(module.named_children())
    blocks = [_own_class(c) for _, c in children if not isinstance(c, _CONTAINERS) and any(True for _ in c.children())]
    for name, child in children:
        if not isinstance(child, _CONTAINERS) and blocks.count(_own_class(child)) > 1:
            yield prefix + name, child
        else:
            yield from _repeated(child, f"{prefix}{name}.")


def _nothing_chosen(module: nn.Module, select: Any, where: str) -> str:
    if select is None:
        return (
            f"{where}: {type(module).__name__} has no repeated blocks (submodules of one class side by side, with"
            " submodules of their own; containers such as nn.Sequential do not count). Say which with `select=`: a"
            " class, names, or a function of a submodule."
        )
    names = [name for name, _ in module.named_modules() if name]
    hint = suggest(select, names) if isinstance(select, str) else ""
    shown = f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" or "none"
    return f"{where}(select={select!r}): no submodule of {type(module).__name__} fits.{hint} Its submodules: {shown}."


def _refuse(block: nn.Module, where: str) -> None:
    if isinstance(block, torch.jit.ScriptModule):
        raise ArgumentValueError(f"{where} is a TorchScript module, which cannot be checkpointed.")
    if isinstance(block, _CONTAINERS) and type(block).forward in (nn.ModuleList.forward, nn.ModuleDict.forward):
        raise ArgumentValueError(f"{where} is a {type(block).__name__}, which has no `forward`; choose what is in it.")
    if "forward" in vars(block):
        raise ArgumentValueError(
            f"{where}: the object of {type(block).__name__} has a `forward` of its own (patched or compiled), which"
            f" would not be checkpointed. Checkpoint it first, or wrap it in a module."
        )


# --- how -------------------------------------------------------------------------------------------------------------


def _own_class(block: nn.Module) -> Any:
    """The class of a block as it was before."""
    return getattr(type(block), _MARK, (type(block),))[0]


def _wrap(block: nn.Module, settings: _Settings) -> None:
    has_statistics = any(isinstance(m, _NormBase) for m in block.modules())
    # Another class instead of a module around it: names, attributes and `isinstance` stay.
    block.__class__ = _checkpointed(_own_class(block), dataclasses.replace(settings, has_statistics=has_statistics))


@functools.cache
def _checkpointed(base: Any, settings: _Settings) -> Any:
    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        compute = functools.partial(base.forward, self)
        if not torch.is_grad_enabled():
            return compute(*args, **kwargs)
        with _offloading(args, kwargs) if settings.offload_to_cpu else contextlib.nullcontext():
            return _compute_twice(self, compute, settings, args, kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        # The class exists in this process only; a copy or another process makes it anew.
        return _empty, (base, settings), self.__getstate__()

    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base)(
        base.__name__, (base,), {**names, "forward": forward, "__reduce_ex__": reduce, _MARK: (base, settings)}
    )


def _empty(base: type, settings: _Settings) -> Any:
    cls = _checkpointed(base, settings)
    return cls.__new__(cls)


def _compute_twice(block: nn.Module, compute: Any, settings: _Settings, args: Any, kwargs: Any) -> Any:
    if settings.use_reentrant:
        # Its first computation is the one without gradients.
        def once(*inputs: Any) -> Any:
            with _statistics_kept(block) if torch.is_grad_enabled() else contextlib.nullcontext():
                return compute(*inputs)

        function = once if settings.has_statistics else compute
        return checkpoint(function, *args, use_reentrant=True, preserve_rng_state=settings.preserve_rng_state, **kwargs)
    more: dict[str, Any] = {}
    # A compiler updates statistics once by itself, and knows torch's default alone.
    if settings.has_statistics and not torch.compiler.is_compiling():
        more["context_fn"] = lambda: (contextlib.nullcontext(), _statistics_kept(block))
    return checkpoint(
        compute, *args, use_reentrant=False, preserve_rng_state=settings.preserve_rng_state, **more, **kwargs
    )


def _offloading(args: Any, kwargs: Any) -> Any:
    on_gpu = any(isinstance(value, Tensor) and value.is_cuda for value in (*args, *kwargs.values()))
    return torch.autograd.graph.save_on_cpu(pin_memory=on_gpu)


@contextlib.contextmanager
def _statistics_kept(block: nn.Module) -> Iterator[None]:
    """Give running statistics back afterwards; through `.data`, since autograd may have saved them."""
    kept = [
        (buffer, buffer.clone())
        for layer in block.modules()
        if isinstance(layer, _NormBase) and layer.training
        for buffer in (layer.running_mean, layer.running_var, layer.num_batches_tracked)
        if buffer is not None
    ]
    try:
        yield
    finally:
        for buffer, value in kept:
            buffer.data.copy_(value)
