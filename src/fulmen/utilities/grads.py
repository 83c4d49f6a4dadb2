"""Norms of gradients."""

from __future__ import annotations

import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError


def grad_norm(
    module: torch.nn.Module, norm_type: float | int | str, group_separator: str = "/"
) -> dict[str, torch.Tensor]:
    """Return the norm of each parameter's gradient and of all of them together.

    Args:
        module: The module whose gradients are measured; parameters without one are left out.
        norm_type: Order of the norm, a number above 0 or ``"inf"``.
        group_separator: Put between ``grad_<p>_norm`` and the parameter's name.

    Returns:
        0-dim tensors under ``grad_<p>_norm/<name>`` and, if there is any, ``grad_<p>_norm_total``. No device sync.

    Raises:
        ArgumentTypeError: `norm_type` is not a number.
        ArgumentValueError: `norm_type` is 0 or below.
    """
    try:
        order = float(norm_type)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"grad_norm(norm_type={norm_type!r}): give a number above 0 or 'inf'.") from None
    if not order > 0:
        raise ArgumentValueError(f"grad_norm(norm_type={norm_type!r}): the order must be above 0 ('inf' is allowed).")
    key = f"grad_{order}_norm"
    norms = {
        f"{key}{group_separator}{name}": torch.linalg.vector_norm(parameter.grad.detach(), order)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    if norms:
        first = next(iter(norms.values()))
        stacked = torch.stack([norm.to(first.device) for norm in norms.values()])
        norms[f"{key}_total"] = torch.linalg.vector_norm(stacked, order)
    return norms
