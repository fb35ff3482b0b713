"""The interface of a method: a class that overrides the hooks it needs, and nothing else.

What a method does is recognised by the hooks it overrides, never by its name or type. Hooks that
rewrite something chain in any number; hooks that take something over (`attend`, `objective`) can
be held by one method of a composition only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor, nn

from attndrop_repro.methods.call import AttentionCall, Site, Step
from attndrop_repro.methods.settings import Settings
from attndrop_repro.methods.taps import Taps

S = TypeVar("S", bound=Settings)

CHAINED = ("prepare", "begin_step", "rewrite", "weight", "hidden", "penalty", "learner")
# what "all" means in `Method.models`; a test puts every method into each of these
SUPPORTED_MODELS = (
    "timm: ViT, DeiT, BEiT, EVA, Swin; torchvision: ViT; torch: nn.MultiheadAttention and "
    "nn.Transformer; Hugging Face: BERT, RoBERTa, ViT, Marian, T5, Llama, GPT-2"
)
WITHOUT_GPT2 = "all but GPT-2"  # whose layers are no nn.Linear
EXCLUSIVE = ("attend", "objective")


@dataclass(frozen=True)
class Task:
    """What the outputs are for.

    Attributes:
        criterion: Task loss of outputs (B, ..., classes) and targets; a scalar mean.
        real: Boolean (B, ...) over the outputs' leading shape, True where a position counts (A13:
            padding never does); None: all do.
    """

    criterion: Callable[[Tensor, Any], Tensor]
    real: Tensor | None = None


class Learner(Protocol):
    """A module of a method's own, kept apart: its parameters never enter the model's.

    Attributes:
        held_out: Whether `update` must be given examples that the model is not trained on.
    """

    held_out: bool

    def modules(self) -> nn.Module:
        """What has parameters; saved in the checkpoint."""

    def update(
        self, evaluate: Callable[..., Tensor], x: Any, y: Any, task: Task
    ) -> dict[str, float]:
        """One update on this batch after the model's own step; returns what to log.

        Args:
            evaluate: ``evaluate(x, method)``: outputs of the model with this method alone at work,
                or, for None, of the plain model; without gradients of the model.
            x: Inputs of the batch.
            y: Targets.
            task: What the outputs are for.
        """

    def state_dict(self) -> dict[str, Any]:
        """All that it needs to go on bit by bit, optimiser included: tensors and plain numbers.

        Flat, by name, so that a checkpoint can keep them in safetensors and JSON.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave."""


class Method(Generic[S]):
    """One regulariser.

    Class attributes:
        name: As users write it.
        reference: Paper, year, section or equation.
        notes: Open points and errata that bear on it, in a sentence or two.
        passes: Forward passes a training step.
        stochastic: Whether two passes over the same batch differ.
        first: Whether its `rewrite` comes before others' in a composition: it reads the model's own
            masks, to which the others add.
        needs: Places whose sites it must find in a model, at least one each; ``"qkv|q"`` is met by
            either.
        models: Which of `SUPPORTED_MODELS` it fits, in words.
        examples: Settings that the contract test must try, besides those that it makes from the
            fields: strengths from 0 up, and each alternative of every choice.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    notes: ClassVar[str] = ""
    Settings: ClassVar[type[Settings]] = Settings
    passes: ClassVar[int] = 1
    stochastic: ClassVar[bool] = True
    first: ClassVar[bool] = False
    needs: frozenset[str] = frozenset()
    models: ClassVar[str] = "all"
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ()

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether this class has its own version of a hook."""
        return getattr(cls, hook) is not getattr(Method, hook)

    @property
    def idle(self) -> bool:
        """Whether its strength is 0 for good: then it is never called."""
        return False

    def missing(self, places: Container[str]) -> list[str]:
        """What it needs and a model with these places has not; nothing where it is idle."""
        if self.idle:
            return []
        met = {need for need in self.needs if any(place in places for place in need.split("|"))}
        return sorted(need.replace("|", " or ") for need in self.needs - met)

    def prepare(self, attention: Sequence[Site]) -> None:
        """Called once, when the method gets into a model: what must know its sites is made here."""

    def begin_step(self, step: Step) -> None:
        """Called before every training forward pass: draws of batch scope are made here."""

    def drawn(self) -> Any:
        """This pass's draws of batch scope, for `recall`; None where there are none."""
        return None

    def recall(self, drawn: Any) -> None:
        """Puts back what `drawn` gave, when activations of that pass are computed again."""

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        """Changes what an attention computes on; returns `call` itself where it changes nothing."""
        return call

    def attend(self, call: AttentionCall) -> Tensor:
        """Takes over an attention whose logits must be touched; (B, H, Q, D)."""
        return call.run()

    def weight(self, site: Site, weight: Tensor) -> Tensor:
        """Changes the weight (out, in) of a linear layer for this forward."""
        return weight

    def hidden(self, site: Site, x: Tensor) -> Tensor:
        """Changes activations (B, N, C) at a place."""
        return x

    def taps(self) -> frozenset[str]:
        """The places that `penalty` wants to see: "attention", "fc1", "fc2"."""
        return frozenset()

    def penalty(self, taps: Taps) -> Tensor:
        """A scalar added to the loss of this pass."""
        raise AssertionError(f"{self.name} wants taps but has no penalty")

    def objective(self, outputs: Sequence[Tensor], y: Any, task: Task) -> Tensor:
        """The loss of a step from the outputs of its passes; penalties are added to it."""
        return task.criterion(outputs[0], y)

    def learner(self) -> Learner | None:
        """Its own module and optimiser, if it has one."""
        return None
