"""What recipes train: timm's models and ours, behind one interface that takes pixels."""

from attndrop_repro.models.build import build, build_for
from attndrop_repro.models.pixel import PixelModel
from attndrop_repro.models.subject import Subject
from attndrop_repro.models.weights import load_weights, read_weights, start_from

__all__ = [
    "PixelModel",
    "Subject",
    "build",
    "build_for",
    "load_weights",
    "read_weights",
    "start_from",
]
