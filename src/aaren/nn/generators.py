"""Random numbers of one thread: a generator of its own in place of torch's, which all threads share.

What a model draws on a CPU, first weights and dropout, then comes from it; the generator of the process,
and so of other threads, is neither used nor advanced.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

DRAWING = frozenset(
    {
        *("bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial"),
        *("normal", "normal_", "rand", "randint", "randn", "random_", "randperm", "uniform_"),
    }
)


class _OfThread(threading.local):
    generator: torch.Generator | None = None


_own = _OfThread()


def own_generator() -> torch.Generator | None:
    """Return the generator that this thread draws from; None: torch's own."""
    return _own.generator


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let dropout of this thread draw from a generator; first weights need `building_from` around them."""
    before, _own.generator = _own.generator, generator
    try:
        yield
    finally:
        _own.generator = before


class building_from(TorchFunctionMode):  # noqa: N801  used like the function above
    """Let this thread draw from this generator wherever none is named; slows every call down."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        del types
        named = dict(kwargs or {})
        if "generator" in named or getattr(func, "__name__", "") in DRAWING:
            named["generator"] = named.get("generator") or self.generator
        return func(*args, **named)
