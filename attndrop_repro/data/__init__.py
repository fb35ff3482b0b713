"""The data sets that recipes name: one file a source; splitting; augmentation; batches."""

from attndrop_repro.data.base import ImageSplit, Splits
from attndrop_repro.data.load import load
from attndrop_repro.data.registry import Entry, names
from attndrop_repro.data.registry import get as describe

__all__ = ["Entry", "ImageSplit", "Splits", "describe", "load", "names"]
