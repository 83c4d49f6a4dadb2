"""`fulmen env`: what a bug report should say about the machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fulmen.version import __version__

#: Distributions whose versions matter to a run, in the order shown.
PACKAGES = (
    "torch",
    "torchmetrics",
    "torchvision",
    "numpy",
    "fsspec",
    "rich",
    "PyYAML",
    "tensorboard",
    "wandb",
    "mlflow",
    "comet-ml",
    "jsonargparse",
    "omegaconf",
    "hydra-core",
    "transformers",
    "accelerate",
    "deepspeed",
    "ray",
    "optuna",
    "onnx",
    "onnxruntime",
    "openvino",
    "litserve",
    "lightning",
    "pytorch-lightning",
)
PREFIXES = ("FULMEN_", "PL_")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the sub-command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the description; works without a usable torch too."""
    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else render(facts))
    return 0


def collect() -> dict[str, Any]:
    """Facts about Python, system, torch, devices, packages and Fulmen's environment variables, as plain values."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "fulmen": __version__,
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "system": {"platform": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()},
        "torch": _torch(),
        "packages": packages,
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(PREFIXES)},
    }


def _torch() -> dict[str, Any]:
    try:
        import torch
    except Exception as error:  # a broken installation is just what this command has to show
        return {"error": f"{type(error).__name__}: {error}"}
    devices = [f"cpu ({torch.get_num_threads()} threads)"]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(f"cuda:{index} ({properties.name}, {properties.total_memory / 2**30:.1f} GiB)")
    if torch.backends.mps.is_available():
        devices.append("mps")
    if torch.xpu.is_available():
        devices += [f"xpu:{index} ({torch.xpu.get_device_name(index)})" for index in range(torch.xpu.device_count())]
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "distributed": torch.distributed.is_available(),
        "devices": devices,
    }


def render(facts: dict[str, Any]) -> str:
    """The facts as aligned lines for people."""
    torch_facts = facts["torch"]
    rows: list[tuple[str, str]] = [
        ("fulmen", facts["fulmen"]),
        ("python", f"{facts['python']['version']} ({facts['python']['implementation']})"),
        ("system", f"{facts['system']['platform']}, {facts['system']['cpus']} CPUs"),
    ]
    if "error" in torch_facts:
        rows.append(("torch", f"cannot be imported: {torch_facts['error']}"))
    else:
        built = next((f"{k} {torch_facts[k]}" for k in ("cuda", "rocm") if torch_facts[k]), "CPU only")
        rows.append(("torch", f"{torch_facts['version']} ({built})"))
        rows += [("device", device) for device in torch_facts["devices"]]
    rows += [(f"  {name}", number) for name, number in facts["packages"].items() if name != "torch"]
    rows += [(f"  {name}", value) for name, value in facts["environment"].items()]
    width = max(len(name) for name, _ in rows)
    if not facts["environment"]:
        rows.append(("settings", f"no {' or '.join(p + '*' for p in PREFIXES)} variables set"))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
