"""Read and write hyperparameters as YAML or CSV files, in the forms that loggers leave behind."""

from __future__ import annotations

import ast
import csv
import importlib
import os
from argparse import Namespace
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from fulmen.engine.storage.filesystem import get_filesystem
from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn
from fulmen.types import PathOrStr
from fulmen.utilities.imports import module_available

_TUPLE = "tag:yaml.org,2002:python/tuple"


def read_hparams_file(path: PathOrStr) -> dict[str, Any]:
    """Return the values of a ``.yaml``, ``.yml`` or ``.csv`` file.

    Args:
        path: Local path or URL.

    Raises:
        ArgumentValueError: The extension is another one, or the file holds no mapping.
        FileNotFoundError: There is no such file.
    """
    extension = os.path.splitext(os.fspath(path))[1].lower()
    if extension == ".csv":
        return load_hparams_from_tags_csv(path)
    if extension in (".yaml", ".yml"):
        return load_hparams_from_yaml(path)
    raise ArgumentValueError(f"hparams_file={os.fspath(path)!r}: give a file that ends in .yaml, .yml or .csv.")


def load_hparams_from_yaml(config_yaml: PathOrStr, use_omegaconf: bool = True) -> Any:
    """Return the hyperparameters of a YAML file.

    Nothing in the file is executed: tags of Python objects other than tuples are refused.

    Args:
        config_yaml: Local path or URL.
        use_omegaconf: Return a ``DictConfig`` if the values hold interpolations (``${...}``) and omegaconf is there.

    Raises:
        ArgumentValueError: The file is no YAML mapping or has a tag that is not accepted.
        FileNotFoundError: There is no such file.
    """
    import yaml

    where = os.fspath(config_yaml)
    with _open(config_yaml, "r") as file:
        text = file.read()
    try:
        values = yaml.load(text, Loader=_safe_loader())
    except yaml.YAMLError as error:
        raise ArgumentValueError(f"Hyperparameter file {where!r} cannot be read: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ArgumentValueError(f"Hyperparameter file {where!r} holds a {type(values).__name__}, not a mapping.")
    if use_omegaconf and "${" in text and module_available("omegaconf"):
        return importlib.import_module("omegaconf").OmegaConf.create(values)
    return values


def save_hparams_to_yaml(
    config_yaml: PathOrStr, hparams: Mapping[str, Any] | Namespace, use_omegaconf: bool = True
) -> None:
    """Write hyperparameters to a YAML file; values that YAML cannot hold are left out with a warning naming them.

    Args:
        config_yaml: Local path or URL; its folder must exist.
        hparams: The values.
        use_omegaconf: Resolve OmegaConf containers to plain ones (else they are left out).

    Raises:
        ArgumentTypeError: `hparams` is no mapping.
        FileNotFoundError: The folder does not exist.
    """
    import yaml

    values = _as_mapping(hparams)
    kept: dict[str, Any] = {}
    for key, value in values.items():
        try:
            plain = _yaml_value(value, use_omegaconf)
            yaml.dump(plain, Dumper=_safe_dumper())
        except Exception:  # representers run code of the value's class
            warn(
                "W053",
                f"Hyperparameter {key!r} ({type(value).__name__}) cannot be written as YAML and is left out of"
                f" {os.fspath(config_yaml)!r}.",
                key=str(key),
            )
        else:
            kept[key] = plain
    with _open(config_yaml, "w") as file:
        yaml.dump(kept, file, Dumper=_safe_dumper())


def load_hparams_from_tags_csv(tags_csv: PathOrStr) -> dict[str, Any]:
    """Return the hyperparameters of a CSV file with the columns key and value; literals become Python values.

    Args:
        tags_csv: Local path or URL.

    Raises:
        FileNotFoundError: There is no such file.
    """
    with _open(tags_csv, "r", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {row[0]: convert(row[1]) for row in rows if len(row) >= 2}


def save_hparams_to_tags_csv(tags_csv: PathOrStr, hparams: Mapping[str, Any] | Namespace) -> None:
    """Write hyperparameters to a CSV file with the columns key and value.

    Args:
        tags_csv: Local path or URL; its folder must exist.
        hparams: The values; they are written as `str` shows them.

    Raises:
        ArgumentTypeError: `hparams` is no mapping.
        FileNotFoundError: The folder does not exist.
    """
    values = _as_mapping(hparams)
    with _open(tags_csv, "w", newline="") as file:
        csv.writer(file).writerows([("key", "value"), *((key, str(value)) for key, value in values.items())])


def convert(val: str) -> Any:
    """Return the Python literal that a string spells, or the string itself.

    Args:
        val: Text of a cell.
    """
    try:
        return ast.literal_eval(val)
    except (ValueError, SyntaxError):
        return val


def update_hparams(hparams: dict[str, Any], updates: Mapping[str, Any]) -> None:
    """Put `updates` into `hparams` in place; nested dictionaries are updated, not replaced.

    Args:
        hparams: Changed in place.
        updates: New values.
    """
    for key, value in updates.items():
        if isinstance(value, Mapping) and isinstance(hparams.get(key), dict):
            update_hparams(hparams[key], value)
        else:
            hparams[key] = value


def _open(path: PathOrStr, mode: str, newline: str | None = None) -> Any:
    file_system = get_filesystem(path)
    where = os.fspath(path)
    folder = os.path.dirname(where)
    if mode == "r" and not file_system.exists(where):
        raise FileNotFoundError(f"There is no hyperparameter file {where!r}.")
    if mode == "w" and folder and "://" not in where and not file_system.isdir(folder):
        raise FileNotFoundError(f"The folder of {where!r} does not exist.")
    return file_system.open(where, mode, encoding="utf-8", newline=newline)


def _as_mapping(hparams: Any) -> Mapping[str, Any]:
    values = vars(hparams) if isinstance(hparams, Namespace) else hparams
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"hparams is a {type(hparams).__name__}; give a dict or a Namespace.")
    return values


def _yaml_value(value: Any, use_omegaconf: bool) -> Any:
    kind = type(value)
    if use_omegaconf and kind.__module__.partition(".")[0] == "omegaconf":
        return importlib.import_module("omegaconf").OmegaConf.to_container(value, resolve=True)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, dict):  # subclasses too, such as AttributeDict
        return {key: _yaml_value(item, use_omegaconf) for key, item in value.items()}
    if kind in (list, tuple):
        return kind(_yaml_value(item, use_omegaconf) for item in value)
    return value


def _safe_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain YAML, and the tuples that Python's own writer tags."""

    def as_tuple(loader: Any, node: Any) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    Loader.add_constructor(_TUPLE, as_tuple)
    return Loader


def _safe_dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Plain YAML, and tuples with the tag of Python's own writer."""

    Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_sequence(_TUPLE, value))
    return Dumper
