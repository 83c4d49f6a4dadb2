"""Seeds and states of the random number generators of Python, NumPy and torch."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn
from fulmen.utilities.rank_zero import rank_zero_info

MAX_SEED = 2**32 - 1
_SEED_VARIABLES = ("PL_GLOBAL_SEED", "FULMEN_GLOBAL_SEED")
_WORKER_VARIABLES = ("PL_SEED_WORKERS", "FULMEN_SEED_WORKERS")
_PER_RANK_VARIABLE = "FULMEN_SEED_PER_RANK"
_MASK64 = 2**64 - 1

_calls = 0


def seed_everything(
    seed: int | None = None,
    workers: bool = False,
    verbose: bool = True,
    per_rank: bool = False,
) -> int:
    """Seed Python's, NumPy's and torch's global generators with one number.

    The state is the same on every rank, so that a `random_split` in `setup` gives the same split everywhere. The seed
    is also put into the environment (``PL_GLOBAL_SEED``, ``FULMEN_GLOBAL_SEED``), where launched processes find it.

    Args:
        seed: A number from 0 to 2**32 - 1; `None` takes the one in the environment, else 0.
        workers: Whether loader workers get seeds of their own, per worker and rank.
        verbose: Whether to log the seed, on rank 0.
        per_rank: Whether ranks draw different numbers from the start of `fit` on.

    Returns:
        The seed that was set.

    Raises:
        ArgumentTypeError: The seed is not a whole number.
        ArgumentValueError: The seed (also one from the environment) is out of range.
    """
    global _calls
    value = _seed_from_env() if seed is None else _checked(seed, "seed_everything(seed=...)")
    if value is None:
        value = 0
        if verbose:
            warn(
                "W030",
                "seed_everything() found no seed in its arguments or in the environment and took 0.",
            )
    for name in _SEED_VARIABLES:
        os.environ[name] = str(value)
    for name in _WORKER_VARIABLES:
        os.environ[name] = str(int(bool(workers)))
    os.environ[_PER_RANK_VARIABLE] = str(int(bool(per_rank)))
    _seed_generators(value)
    _calls += 1
    if verbose:
        rank_zero_info(f"Seed set to {value}")
    return value


def _checked(seed: Any, where: str) -> int:
    try:
        value = int(seed)
    except (TypeError, ValueError):
        kind = ArgumentTypeError if not isinstance(seed, str) else ArgumentValueError
        raise kind(f"{where}: {seed!r} is not a whole number; give one from 0 to {MAX_SEED}.") from None
    if not 0 <= value <= MAX_SEED:
        raise ArgumentValueError(f"{where}: {value} is out of range; NumPy takes seeds from 0 to {MAX_SEED}.")
    return value


def _seed_from_env() -> int | None:
    for name in reversed(_SEED_VARIABLES):
        text = os.environ.get(name)
        if text is not None:
            return _checked(text, f"environment variable {name}")
    return None


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np = _numpy()
    if np is not None:
        np.random.seed(seed)
    torch.manual_seed(seed)


def _numpy(imported_only: bool = False) -> Any:
    if imported_only:
        return sys.modules.get("numpy")
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def seed_calls() -> int:
    """Return how often `seed_everything` ran in this process; a change shows that a hook called it."""
    return _calls


def current_seed() -> int | None:
    """Return the seed that was set with `seed_everything` (here or in the process that started this one)."""
    return _seed_from_env()


def workers_are_seeded() -> bool:
    """Return whether `seed_everything(..., workers=True)` was asked for."""
    return any(os.environ.get(name, "0").strip() in ("1", "True", "true") for name in _WORKER_VARIABLES)


def seed_rank(rank: int) -> bool:
    """Give this rank numbers of its own, if `seed_everything(..., per_rank=True)` asked for it.

    The trainer calls it once, before `on_fit_start`. Rank 0 keeps the plain stream.

    Returns:
        Whether generators were seeded.
    """
    seed = _seed_from_env()
    if rank == 0 or seed is None or os.environ.get(_PER_RANK_VARIABLE, "0") != "1":
        return False
    first, *_ = seed_sequence(seed, 0, rank, 1)
    _seed_generators(first & MAX_SEED)
    return True


def reset_seed() -> None:
    """Set the generators back to the seed of the last `seed_everything`; nothing happens without one."""
    seed = _seed_from_env()
    if seed is not None:
        _seed_generators(seed)


def seed_sequence(base_seed: int, worker_id: int, global_rank: int, count: int) -> list[int]:
    """Return `count` 64-bit seeds for a loader worker, the same ones that Lightning 2.6 gives it.

    Seed, worker and rank are mixed with MurmurHash3's 64-bit finaliser, then a linear congruential generator with
    Knuth's multiplier draws the seeds.
    """
    x = (base_seed << 32) | (worker_id << 16) | global_rank
    x ^= x >> 33
    x = (x * 0xFF51AFD7ED558CCD) & _MASK64
    x ^= x >> 33
    x = (x * 0xC4CEB9FE1A85EC53) & _MASK64
    x ^= x >> 33
    seeds = []
    for _ in range(count):
        x = (x * 6364136223846793005 + 1) & _MASK64
        seeds.append(x)
    return seeds


def pl_worker_init_function(worker_id: int, rank: int | None = None) -> None:
    """Seed a loader worker's generators by worker and rank; a `worker_init_fn` with Lightning's numbers.

    Args:
        worker_id: Number of the worker.
        rank: Global rank of the process that owns the loader; `None` reads it from the environment.
    """
    from fulmen.utilities.rank_zero import rank_zero_only

    global_rank = rank_zero_only.rank if rank is None else rank
    base_seed = torch.initial_seed() - worker_id  # the loader gave this worker base_seed + worker_id
    seeds = seed_sequence(base_seed, worker_id, global_rank, count=4)
    torch.manual_seed(seeds[0])
    random.seed((seeds[1] << 32) | seeds[2])
    np = _numpy()
    if np is not None:
        np.random.seed(np.random.SeedSequence([base_seed, worker_id, global_rank]).generate_state(4))


def collect_rng_states(include_cuda: bool = True) -> dict[str, Any]:
    """Return the states of all global generators as plain values and tensors.

    NumPy's is left out as long as nothing imported it. Reading does not change any generator.
    """
    version, numbers, gauss = random.getstate()
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": (version, tuple(numbers), gauss),
    }
    np = _numpy(imported_only=True)
    if np is not None:
        name, keys, position, has_gauss, cached = np.random.get_state()
        # torch has no arithmetic for uint32, so the 624 words travel as int64.
        words = torch.from_numpy(keys.astype("int64"))
        states["numpy"] = (
            str(name),
            words,
            int(position),
            int(has_gauss),
            float(cached),
        )
    if include_cuda and torch.cuda.is_available():
        states["torch.cuda"] = torch.cuda.get_rng_state_all()
    if include_cuda and torch.backends.mps.is_available():
        states["torch.mps"] = torch.mps.get_rng_state()
    return states


def set_rng_states(states: dict[str, Any]) -> None:
    """Set the generators to states of `collect_rng_states`, or of Lightning's checkpoints (same keys)."""
    torch.set_rng_state(torch.as_tensor(states["torch"], device="cpu"))
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    np = _numpy()
    if np is not None and "numpy" in states:
        name, keys, position, has_gauss, cached = states["numpy"]
        words = keys.cpu().numpy() if isinstance(keys, torch.Tensor) else np.asarray(keys)
        np.random.set_state((name, words.astype("uint32"), position, has_gauss, cached))
    cuda = states.get("torch.cuda") or []
    if cuda and torch.cuda.is_available():
        # A run may go on with fewer or more devices; those that have a state get it.
        for index, state in enumerate(cuda[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.as_tensor(state, device="cpu"), index)
    if "torch.mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(torch.as_tensor(states["torch.mps"], device="cpu"))


@contextmanager
def isolate_rng(include_cuda: bool = True) -> Iterator[None]:
    """Put all global generators back to where they were when the block ends, also after an exception.

    Args:
        include_cuda: Whether devices' generators are kept too.
    """
    states = collect_rng_states(include_cuda)
    try:
        yield
    finally:
        set_rng_states(states)
