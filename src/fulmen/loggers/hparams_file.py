"""The file ``hparams.yaml`` of a run: plain, safe YAML."""

from __future__ import annotations

from typing import Any

from fulmen.loggers import files
from fulmen.types import PathOrStr
from fulmen.utilities.logger import convert_params, plain_params

NAME_HPARAMS_FILE = "hparams.yaml"


def save_hparams_to_yaml(config_yaml: PathOrStr, hparams: Any, use_omegaconf: bool = True) -> None:
    """Write hyperparameters to a YAML file, atomically.

    The file holds plain values only (`fulmen.utilities.logger.plain_params`), so that any YAML reader can load it
    without running code; keys stay in their order.

    Args:
        config_yaml: Path or URL of the file; its folder must exist.
        hparams: A mapping, Namespace, dataclass instance or OmegaConf config.
        use_omegaconf: Accepted for Lightning's signature; OmegaConf configs are always resolved.

    Raises:
        ArgumentTypeError: If `hparams` is of another type.
    """
    import yaml

    del use_omegaconf
    path = files.local(files.check_path(config_yaml, "config_yaml", "save_hparams_to_yaml"))
    plain = plain_params(convert_params(hparams))
    files.replace_text(path, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False))
