"""Attacks on a model whose regulariser stays on: expectation over transformations.

Gradients are means over several draws (Athalye et al. 2018), and so is what decides a prediction:
the mean of the probabilities. Draws come from the stream of the chunk, so a chunk is what is
attacked together, whatever the batch size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attndrop_repro.evaluation.attack_setting import AttackSetting
from attndrop_repro.evaluation.attack_state import CHUNK, State
from attndrop_repro.evaluation.attacks import Run
from attndrop_repro.evaluation.guard import forward
from attndrop_repro.randomness import stream


class RegularisedRun(Run):
    """One setting on a model in train mode; its batch norms stay in eval mode."""

    def __init__(
        self, model: nn.Module, setting: AttackSetting, seed: int, batch_size: int
    ) -> None:
        super().__init__(model, setting, seed, batch_size)
        model.train()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()  # an attack must not teach it the attack's statistics

    def scores(self, x: Tensor, positions: Tensor, tag: str | int) -> Tensor:
        """Mean probabilities over the draws, (B, classes)."""
        chunk = positions // CHUNK
        means = []
        with torch.no_grad():
            for number in sorted(set(chunk.tolist())):
                with stream(self.seed, "attack", self.setting.label, "scores", tag, number):
                    part = x[chunk == number]
                    drawn = [forward(self.model, part).softmax(1) for _ in self._draws]
                means.append(torch.stack(drawn).mean(0))
        return torch.cat(means)

    @property
    def _draws(self) -> range:
        return range(self.setting.draws)

    def restart(self, state: State, rows: Tensor, restart: int) -> None:
        """One start of the attack on the examples that are left, all steps."""
        import torchattacks

        s = self.setting
        fgsm = s.name == "fgsm"
        whole = torchattacks.EOTPGD(
            self.target, eps=s.eps.value, alpha=s.eps.value if fgsm else s.step_size.value,
            steps=1 if fgsm else s.steps, eot_iter=s.draws, random_start=False,
        )  # fmt: skip
        if state.aim is not None:
            whole.set_mode_targeted_by_label(quiet=True)
        now = state.x[rows] if fgsm else state.starts(rows, s, self.seed, restart)
        images = torch.empty_like(now)
        for number, chunk in state.chunks(rows):
            inside = torch.isin(rows, chunk)
            self.target.start, self.target.watch = now[inside], True
            with stream(self.seed, "attack", s.label, "gradients", restart, number):
                images[inside] = whole(state.x[chunk], state.labels[chunk])
        state.judge(rows, images, self.scores(images, rows + state.first, restart))
