"""How a method gets into a model of timm, torchvision, torch or Hugging Face."""

from attndrop_repro.adapters.handle import Handle, apply

__all__ = ["Handle", "apply"]
