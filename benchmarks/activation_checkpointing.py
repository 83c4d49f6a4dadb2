"""What activation checkpointing saves and costs: bytes kept for backward, and step time, on a 12-layer transformer.

    python -m benchmarks.activation_checkpointing [--rounds 9] [--device cpu]

Both models take turns, step by step, so that a slower minute of the machine meets both; the ratio of the medians is
printed. Goals: bytes at most 0.40, time at most 1.35.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fulmen.utilities import checkpoint_activations


def transformer(layers: int = 12, width: int = 256, heads: int = 4) -> nn.Module:
    """A causal transformer of the usual proportions, without dropout."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.Sequential(
        nn.Embedding(512, width),
        nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
        nn.Linear(width, 512),
    )


def saved_bytes(model: nn.Module, tokens: Tensor) -> int:
    """Bytes that autograd keeps for backward, without parameters; each storage counts once."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # or the next tensor might take its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(model, tokens)
    return sum(kept.values())


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross-entropy of each next token."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    """One training step."""
    optimizer.zero_grad()
    loss_of(model, tokens).backward()
    optimizer.step()


def seconds(function: Callable[[], Any], device: str) -> float:
    """Duration of one call; on the CPU the processor's time, which other processes do not change."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    begin = clock()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - begin


def compare(rounds: int, device: str = "cpu", **size: int) -> dict[str, float]:
    """Measure both models in turn.

    Args:
        rounds: Steps of each that are timed.
        device: Where they run.
        size: Arguments of `transformer`.

    Returns:
        Ratio of bytes, of time, and the largest relative difference of gradients.
    """
    plain, less = transformer(**size).to(device), transformer(**size).to(device)
    checkpoint_activations(less)
    tokens = torch.randint(0, 512, (8, 129), device=device)
    loss_of(plain, tokens).backward()
    loss_of(less, tokens).backward()
    gaps = [
        float((a.grad - b.grad).norm() / a.grad.norm().clamp(min=1e-30))
        for a, b in zip(plain.parameters(), less.parameters(), strict=True)
        if a.grad is not None and b.grad is not None
    ]
    models = [(m, torch.optim.AdamW(m.parameters())) for m in (plain, less)]
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for (model, optimizer), found in zip(models, times, strict=True):
            taken = seconds(lambda m=model, o=optimizer: step(m, o, tokens), device)  # type: ignore[misc]  # bound now
            if number:
                found.append(taken)
    return {
        "bytes": saved_bytes(less, tokens) / saved_bytes(plain, tokens),
        "time": statistics.median(times[1]) / statistics.median(times[0]),
        "gradients": max(gaps),
    }


def main() -> None:
    """Print the three figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, value in compare(options.rounds, options.device).items():
        print(f"{name:<10} {value:.4g}")


if __name__ == "__main__":
    main()
