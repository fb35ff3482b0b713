"""What `attndrop methods` says of supported models is what `apply` does."""

from __future__ import annotations

import pytest
from support import models

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import registry
from attndrop_repro.methods.base import SUPPORTED_MODELS, WITHOUT_GPT2


@pytest.mark.parametrize("model_name", list(models.BY_NAME))
def test_every_method_goes_where_it_says(model_name):
    model, _ = models.build(model_name)
    for name in attndrop.methods():
        method = "dropout+consistency" if name == "consistency" else name
        says = registry.get(name).models
        refuses = says == WITHOUT_GPT2 and model_name == "gpt2"
        assert refuses or says in ("all", WITHOUT_GPT2)
        scoped = "kinds" in registry.get(name).Settings.model_fields
        settings = {"kinds": ["decoder-self"]} if scoped and model_name in DECODERS else {}
        if refuses:
            with pytest.raises(AttndropError):
                attndrop.apply(model, method, settings)
        else:
            attndrop.apply(model, method, settings).remove()


DECODERS = ("llama", "llama-eager", "gpt2")


@pytest.mark.parametrize("word", ["ViT", "Swin", "BEiT", "EVA", "BERT", "Marian", "T5", "Llama"])
def test_the_list_names_the_families(word):
    assert word in SUPPORTED_MODELS
