"""`fulmen ckpt show` and `fulmen ckpt diff`: what a checkpoint holds, and what two of them do not have in common."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fulmen.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_SECTIONS = ("module", "datamodule", "trainer", "optimizers", "seed", "packages", "hardware", "git")
_WIDEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the sub-command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="show|diff")
    show = commands.add_parser(
        "show", help="print progress, configuration, hyperparameters and the size of the weights"
    )
    show.add_argument("path", help="checkpoint file")
    show.add_argument("--weights", action="store_true", help="list every tensor with shape and type")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    diff = commands.add_parser(
        "diff", help="print where configuration, hyperparameters and weights of two files differ"
    )
    diff.add_argument("first", help="checkpoint file")
    diff.add_argument("second", help="checkpoint file")
    diff.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print what was asked for; nothing of a file's own code is run."""
    if options.action == "show":
        facts = collect(_read(options.path), options.path, weights=options.weights)
        print(json.dumps(facts, indent=2) if options.json else render(facts))
    else:
        found = compare(_read(options.first), _read(options.second))
        print(json.dumps(found, indent=2) if options.json else render_difference(found, options.first, options.second))
    return 0


def _read(path: str) -> dict[str, Any]:
    from fulmen.engine.storage.format import decode
    from fulmen.engine.storage.reader import read_verified

    try:
        raw = read_verified(path, "cpu")
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no file {path!r}.") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds a {type(raw).__name__}, not a checkpoint.")
    return dict(decode(raw, where=path))


def collect(checkpoint: Mapping[str, Any], path: str, *, weights: bool = False) -> dict[str, Any]:
    """Facts about a checkpoint as plain values.

    Args:
        checkpoint: The checkpoint as `decode` returns it.
        path: Where it came from.
        weights: Whether every tensor is listed.
    """
    from fulmen.trainer.run_manifest import describe

    own = checkpoint.get("fulmen") or {}
    state = _tensors(checkpoint)
    facts: dict[str, Any] = {
        "path": path,
        "bytes": os.path.getsize(path) if os.path.exists(path) else None,
        "fulmen": own.get("version"),
        "lightning": checkpoint.get("pytorch-lightning_version"),
        "run_id": own.get("run_id"),
        "epoch": checkpoint.get("epoch"),
        "global_step": checkpoint.get("global_step"),
        "weights_only": "optimizer_states" not in checkpoint,
        "weights": {
            "tensors": len(state),
            "elements": sum(t.numel() for t in state.values()),
            "bytes": sum(t.numel() * t.element_size() for t in state.values()),
        },
        "callbacks": sorted(map(str, checkpoint.get("callbacks") or {})),
        "hyper_parameters": describe(checkpoint.get("hyper_parameters") or {}),
        "datamodule_hyper_parameters": describe(checkpoint.get("datamodule_hyper_parameters") or {}),
        "manifest": describe(own.get("manifest") or {}),
    }
    if weights:
        facts["state_dict"] = {name: f"{str(t.dtype)[6:]} {list(t.shape)}" for name, t in state.items()}
    return facts


def _tensors(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    state = checkpoint.get("state_dict") or {}
    return {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}


def render(facts: Mapping[str, Any]) -> str:
    """The facts as lines for people."""
    weights, size = facts["weights"], facts["bytes"]
    writer = f"Fulmen {facts['fulmen']}" if facts["fulmen"] else f"Lightning {facts['lightning'] or '(unknown)'}"
    rows = [
        ("file", facts["path"] + (f" ({size:,} bytes)" if size is not None else "")),
        ("written by", writer + (f", run {facts['run_id']}" if facts["run_id"] else "")),
        ("progress", f"epoch {facts['epoch']}, step {facts['global_step']}"),
        ("holds", "weights only" if facts["weights_only"] else "weights and training state"),
        ("weights", f"{weights['tensors']} tensors, {weights['elements']:,} elements, {weights['bytes']:,} bytes"),
        ("callbacks", ", ".join(facts["callbacks"]) or "none"),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    sections = {"hyper_parameters": facts["hyper_parameters"]}
    sections["datamodule_hyper_parameters"] = facts["datamodule_hyper_parameters"]
    manifest = facts["manifest"]
    sections |= {name: _short(name, manifest[name]) for name in _SECTIONS if manifest.get(name)}
    if not manifest:
        lines.append("manifest    none (not written by Fulmen, or by an earlier version)")
    sections["state_dict"] = facts.get("state_dict", {})
    for name, section in sections.items():
        flat = dict(_flat(section))
        if flat:
            width = max(map(len, flat))
            lines += ["", f"[{name}]", *(f"{key:<{width}}  {_text(value)}" for key, value in flat.items())]
    return "\n".join(lines)


def _short(name: str, section: Any) -> Any:
    """What `show` prints of a section: of the Trainer's arguments those that were given, and what they came to."""
    if name in ("module", "datamodule"):
        return {key: value for key, value in section.items() if key != "hparams"}  # they have their own section
    if name != "trainer" or "effective" not in section:
        return section
    effective = section["effective"]
    keys = ("accelerator", "strategy", "devices", "precision", "callbacks", "logger")
    return {**section["given"], **{key: _class(effective.get(key)) for key in keys}}


def _class(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(_class(item)) for item in value) or None
    return str(value["class"]).rpartition(".")[2] if isinstance(value, dict) and "class" in value else value


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None or (not value and name):
        yield name, value
        return
    for key, item in items:
        yield from _flat(item, f"{name}.{key}" if name else str(key))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Where two checkpoints differ.

    Args:
        first: A checkpoint as `decode` returns it.
        second: Another one.

    Returns:
        ``values``: pairs by dotted name, `None` where a file has none; ``weights``: names in one file only, other
        shapes or types, the number of tensors that differ, and the largest absolute difference with its name.
    """
    left, right = _comparable(first), _comparable(second)
    names = [*left, *(name for name in right if name not in left)]
    values = {n: [left.get(n), right.get(n)] for n in names if left.get(n) != right.get(n)}
    return {"values": values, "weights": _compare_weights(_tensors(first), _tensors(second))}


def _comparable(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    facts = collect(checkpoint, "")
    manifest = dict(facts["manifest"])
    if "effective" in (manifest.get("trainer") or {}):
        manifest["trainer"] = manifest["trainer"]["effective"]  # what was given is in it
    module = manifest.get("module")
    if isinstance(module, dict):
        manifest["module"] = {k: v for k, v in module.items() if k != "hparams"}
    parts = {key: facts[key] for key in ("epoch", "global_step", "run_id", "weights_only", "callbacks")}
    parts |= {"hyper_parameters": facts["hyper_parameters"], "datamodule": facts["datamodule_hyper_parameters"]}
    return dict(_flat({**parts, **{name: manifest[name] for name in _SECTIONS if name in manifest}}))


def _compare_weights(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> dict[str, Any]:
    shared = [name for name in left if name in right]
    kinds = {name: [_kind(left[name]), _kind(right[name])] for name in shared}
    other = {name: pair for name, pair in kinds.items() if pair[0] != pair[1]}
    differ, largest, where = 0, 0.0, None
    for name in shared:
        if name in other or left[name].equal(right[name]):
            continue
        differ += 1
        gap = float((left[name].double() - right[name].double()).abs().max())
        if where is None or not gap <= largest:  # also where it is NaN
            largest, where = gap, name
    return {
        "only_first": [name for name in left if name not in right],
        "only_second": [name for name in right if name not in left],
        "other_form": other,
        "shared": len(shared),
        "differ": differ,
        "largest": largest,
        "largest_in": where,
    }


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype)[6:]} {list(tensor.shape)}"


def render_difference(found: Mapping[str, Any], first: str, second: str) -> str:
    """The differences as lines for people: the first file's values with ``-``, the second's with ``+``."""
    lines = [f"- {first}", f"+ {second}"]
    for name, pair in found["values"].items():
        lines += [
            name,
            *(f"  {sign} {_text(value)}" for sign, value in zip("-+", pair, strict=True) if value is not None),
        ]
    weights = found["weights"]
    lines += [f"- weights: {name}" for name in weights["only_first"]]
    lines += [f"+ weights: {name}" for name in weights["only_second"]]
    lines += [f"weights {name}: {a} -> {b}" for name, (a, b) in weights["other_form"].items()]
    if weights["differ"]:
        end = f"; the largest difference is {weights['largest']:.3g}, in {weights['largest_in']}"
    else:
        end = ""
    lines.append(f"weights: {weights['differ']} of {weights['shared']} tensors differ{end}")
    return "\n".join(lines)
