"""Small helpers under Lightning's names; every name is imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.utilities.activation_checkpointing import checkpoint_activations, checkpoint_wrapper, is_checkpointed
    from fulmen.utilities.batch_weights import TokenCount
    from fulmen.utilities.collections import apply_to_collection, move_data_to_device
    from fulmen.utilities.combined_loader import CombinedLoader
    from fulmen.utilities.enums import GradClipAlgorithmType, LightningEnum
    from fulmen.utilities.grads import grad_norm
    from fulmen.utilities.model_helpers import is_overridden
    from fulmen.utilities.parameter_tying import (
        find_shared_parameters,
        set_shared_parameters,
    )
    from fulmen.utilities.parsing import AttributeDict, is_picklable
    from fulmen.utilities.rank_zero import (
        rank_zero_deprecation,
        rank_zero_info,
        rank_zero_only,
        rank_zero_warn,
    )
    from fulmen.utilities.seed import isolate_rng, seed_everything
    from fulmen.utilities.system import is_shared_filesystem, suggested_max_num_workers
    from fulmen.utilities.warnings import disable_possible_user_warnings

_HOME = {
    "AttributeDict": "parsing",
    "CombinedLoader": "combined_loader",
    "GradClipAlgorithmType": "enums",
    "LightningEnum": "enums",
    "TokenCount": "batch_weights",
    "apply_to_collection": "collections",
    "checkpoint_activations": "activation_checkpointing",
    "checkpoint_wrapper": "activation_checkpointing",
    "disable_possible_user_warnings": "warnings",
    "find_shared_parameters": "parameter_tying",
    "grad_norm": "grads",
    "is_checkpointed": "activation_checkpointing",
    "is_overridden": "model_helpers",
    "is_picklable": "parsing",
    "is_shared_filesystem": "system",
    "isolate_rng": "seed",
    "move_data_to_device": "collections",
    "rank_zero_deprecation": "rank_zero",
    "rank_zero_info": "rank_zero",
    "rank_zero_only": "rank_zero",
    "rank_zero_warn": "rank_zero",
    "seed_everything": "seed",
    "set_shared_parameters": "parameter_tying",
    "suggested_max_num_workers": "system",
}

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "GradClipAlgorithmType",
    "LightningEnum",
    "TokenCount",
    "apply_to_collection",
    "checkpoint_activations",
    "checkpoint_wrapper",
    "disable_possible_user_warnings",
    "find_shared_parameters",
    "grad_norm",
    "is_checkpointed",
    "is_overridden",
    "is_picklable",
    "is_shared_filesystem",
    "isolate_rng",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "seed_everything",
    "set_shared_parameters",
    "suggested_max_num_workers",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
