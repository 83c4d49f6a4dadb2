"""What a sampler gives after its first indices, without making those: torch's two samplers, cut where it matters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.utils.data import RandomSampler, SequentialSampler


def indices_after(sampler: Any, count: int) -> Iterator[Any]:
    """Start a sampler and return an iterator over what comes after its first `count` indices.

    Random numbers are drawn from the same generators as by the sampler itself, now and at its end. A permutation is
    drawn whole, but only its rest is made Python numbers: that is where a plain skip spends its time.

    Args:
        sampler: Any sampler; it is asked itself unless it is exactly torch's `SequentialSampler` or a `RandomSampler`
            that draws one permutation.
        count: Indices to leave out.
    """
    if type(sampler) is SequentialSampler and _is_torchs(sampler):
        return iter(range(min(count, len(sampler)), len(sampler)))
    if _draws_one_permutation(sampler) and _permutes_as_torch_does():
        return _rest_of_permutation(sampler, count)
    indices = iter(sampler)
    deque(islice(indices, count), maxlen=0)
    return indices


def _is_torchs(sampler: Any) -> bool:
    return "__iter__" not in vars(sampler) and hasattr(sampler.data_source, "__len__")


def _draws_one_permutation(sampler: Any) -> bool:
    return (
        type(sampler) is RandomSampler
        and _is_torchs(sampler)
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    )


def _rest_of_permutation(sampler: Any, count: int) -> Iterator[int]:
    generator, length = sampler.generator, len(sampler.data_source)
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    order = torch.randperm(length, generator=generator)
    if count > length:  # the sampler has been asked after its end already: the last batch was not a full one
        torch.randperm(length, generator=generator)
        return iter(())

    def rest() -> Iterator[int]:
        yield from order[count:].tolist()
        torch.randperm(length, generator=generator)  # the sampler draws once more when it is asked after its end

    return rest()


@cache
def _permutes_as_torch_does() -> bool:
    """Whether the installed torch draws what is drawn here; asked once, on a small sampler with its own generator."""
    seen = []
    for cut in (False, True):
        generator = torch.Generator().manual_seed(11)
        sampler = RandomSampler(range(7), generator=generator)
        indices = _rest_of_permutation(sampler, 2) if cut else islice(iter(sampler), 2, None)
        seen.append((list(indices), generator.get_state().tolist()))
    state = torch.get_rng_state()
    for cut in (False, True):
        torch.set_rng_state(state)
        sampler = RandomSampler(range(7))
        indices = _rest_of_permutation(sampler, 2) if cut else islice(iter(sampler), 2, None)
        seen.append((list(indices), torch.get_rng_state().tolist()))
    torch.set_rng_state(state)
    return seen[0] == seen[1] and seen[2] == seen[3]
