"""The plain model: the baseline of every comparison."""

from attndrop_repro.methods.base import Method
from attndrop_repro.methods.registry import register
from attndrop_repro.methods.settings import Settings


@register
class Plain(Method[Settings]):
    """No regularisation at all."""

    name = "none"
    reference = "baseline"
    stochastic = False

    @property
    def idle(self) -> bool:
        """Always: there is nothing to do."""
        return True
