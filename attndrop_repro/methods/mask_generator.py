"""The generators of AttendOut: modules and optimiser of its own, learned by REINFORCE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attndrop_repro.functional.attendout import Drawn, advantage, drop_scores, policy_loss
from attndrop_repro.functional.key_dropping import keep_some
from attndrop_repro.methods.base import Task
from attndrop_repro.methods.call import AttentionCall
from attndrop_repro.randomness import torch_stream

if TYPE_CHECKING:
    from attndrop_repro.methods.attendout import AttendOut

NAMES = ("w_q", "b_q", "w_k", "level")  # of a generator's parameters, in the order of drop_scores


class MaskGenerators:
    """One generator per attention, their Adam, and what they drew while being taught.

    Its initial values come from a stream of its own, so that the method changes neither the
    model's initial weights nor other methods' draws.
    """

    held_out = True

    def __init__(self, method: AttendOut) -> None:
        self.method = method
        self.layers = nn.ModuleDict()
        # generators come one by one, and Adam cannot begin with none
        self.optimizer = torch.optim.Adam([torch.zeros(())], lr=method.settings.lr)
        self.optimizer.param_groups.clear()
        self.updates = 0
        self._drawn: list[Drawn] | None = None

    def add(self, layer: int, heads: int, width: int) -> None:
        """Makes the generator of an attention layer, at first the same for every element."""
        if str(layer) in self.layers:
            return
        stream = torch_stream(torch.initial_seed(), "attendout", layer)
        rank = self.method.settings.rank
        made = {
            "w_q": torch.randn(heads, width, rank, generator=stream) / width**0.5,
            "b_q": torch.randn(heads, rank, generator=stream),
            # zero: the product starts at 0, and this side learns from the first update on
            "w_k": torch.zeros(heads, width, rank),
            "level": torch.full((heads,), self.method.rate).logit(),
        }
        module = nn.ParameterDict({name: nn.Parameter(value) for name, value in made.items()})
        self.layers[str(layer)] = module
        self.optimizer.add_param_group({"params": list(module.parameters())})

    def to(self, device: torch.device) -> None:
        """Moves generators and optimiser to where the model is."""
        if any(value.device != device for value in self.layers.parameters()):
            self.layers.to(device)
            for state in self.optimizer.state.values():
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = state[name].to(device)

    def keep(self, call: AttentionCall) -> Tensor:
        """Draws which elements of an attention stay: boolean, (B, H, Q, K); never none of a row."""
        assert call.x is not None
        memory = call.x if call.memory is None else call.memory
        if str(call.site.layer) not in self.layers:
            self.add(call.site.layer, call.q.shape[1], call.x.shape[-1])
            self.to(call.x.device)
        with torch.set_grad_enabled(self._drawn is not None):
            parameters = self._parameters(call.site.layer)
            scores = drop_scores(call.x.detach(), memory.detach(), *parameters.values())
        p, visible = scores.detach().sigmoid(), call.visible()
        uniform = torch.rand(p.shape, device=p.device)
        if self._drawn is not None:
            with torch.enable_grad():
                self._drawn.append(Drawn.of(scores, uniform < p, visible))
        return keep_some(uniform, p, visible)

    def _parameters(self, layer: int | str) -> dict[str, nn.Parameter]:
        module = self.layers[str(layer)]
        return {name: module.get_parameter(name) for name in NAMES}

    def modules(self) -> nn.Module:
        """The generators, by layer."""
        return self.layers

    def update(
        self, evaluate: Callable[..., Tensor], x: Any, y: Any, task: Task
    ) -> dict[str, float]:
        """One step of REINFORCE on held-out examples; every so many calls, as set.

        Returns:
            Mean reward (how much lower the loss is with dropping), rate, entropy in nats.
        """
        settings = self.method.settings
        self.updates += 1
        if self.updates % settings.every:
            return {}
        plain = losses(evaluate(x, None), y, task)
        self._drawn = []
        try:
            dropped = losses(evaluate(x, self.method), y, task)
            drawn = self._drawn
        finally:
            self._drawn = None
        loss = policy_loss(
            advantage(plain, dropped), drawn, self.method.rate,
            entropy=settings.entropy, hold=settings.hold,
        )  # fmt: skip
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._share_gradients()
        self.optimizer.step()
        return {
            "reward": float((plain - dropped).mean()),
            "rate": _mean([layer.rate for layer in drawn]),
            "entropy": _mean([layer.entropy for layer in drawn]),
        }

    def _share_gradients(self) -> None:
        """Averages over ranks, which hold out other examples, so that generators stay the same."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            gradients = [p.grad for p in self.layers.parameters() if p.grad is not None]
            for gradient in gradients:
                torch.distributed.all_reduce(gradient)
                gradient /= torch.distributed.get_world_size()

    def state_dict(self) -> dict[str, Any]:
        """Parameters, Adam's moments and the count of updates, by flat name."""
        state: dict[str, Any] = {"updates": self.updates}
        for layer in self.layers:
            for name, parameter in self._parameters(layer).items():
                state[f"{layer}.{name}"] = parameter.detach().clone()
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    state[f"{layer}.{name}.{key}"] = torch.as_tensor(value).clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` gave; makes generators that were not made yet."""
        self.updates = int(state["updates"])
        for key, value in state.items():
            layer, _, name = key.partition(".")
            if name == "w_q" and layer not in self.layers:
                self.add(int(layer), value.shape[0], value.shape[1])
        self.optimizer.state.clear()
        for layer in self.layers:
            for name, parameter in self._parameters(layer).items():
                prefix = f"{layer}.{name}"
                with torch.no_grad():
                    parameter.copy_(state[prefix])
                moments = {
                    key.removeprefix(f"{prefix}."): value.clone()
                    for key, value in state.items()
                    if key.startswith(f"{prefix}.")
                }
                if moments:
                    self.optimizer.state[parameter].update(moments)


def _mean(values: list[Tensor]) -> float:
    return float(torch.stack([value.detach().mean() for value in values]).mean())


def losses(outputs: Tensor, y: Any, task: Task) -> Tensor:
    """The task loss of every example, (B,); that of the batch where targets are no tensor."""
    batch = outputs.shape[0]
    if isinstance(y, Tensor) and y.ndim and y.shape[0] == batch:
        each = [task.criterion(outputs[i : i + 1], y[i : i + 1]) for i in range(batch)]
        return torch.stack(each).detach()
    return task.criterion(outputs, y).detach().expand(batch)
