"""What the papers leave open, and so every result rests on: A1 to A19, one line each."""

from __future__ import annotations

OPEN_POINTS = {
    "A1": "whether a zeroed logit is multiplied by 0 or its key excluded",
    "A2": "whether the blur acts on keys only or on keys and queries",
    "A3": "direction of the KL term between the two passes",
    "A4": "whether the task loss is that of the first pass or of both",
    "A5": "p, k and lambda of the paper's main results, and the variant under the consistency term",
    "A6": "whether one sigma serves all layers of a batch",
    "A7": "which attentions, layers and tokens are perturbed",
    "A8": "how images of 32 pixels reach a ViT-B/16",
    "A9": "ties among the largest logits, and k beyond the number of keys",
    "A10": "the blur at sigma 0",
    "A11": "edges of the blur",
    "A12": "eps, steps, step size, restarts and norm of the attacks; bins of the ECE",
    "A13": "how a KL term counts sequence positions",
    "A14": "whether an additive attention bias is blurred",
    "A15": "gradient variance per sample or per batch",
    "A16": "rates and places of the baselines; ordinary dropout beside AttentionDrop",
    "A17": "optimiser, schedule, augmentation, epochs and selection for images",
    "A18": "the same for translation",
    "A19": "number of seeds",
}
