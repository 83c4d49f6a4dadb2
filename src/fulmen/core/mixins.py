"""Lightning's home of `HyperparametersMixin`."""

from fulmen.core.hparams import HyperparametersMixin

__all__ = ["HyperparametersMixin"]
