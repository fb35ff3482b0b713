"""The smallest Transformers of every kind that the product gets into, made without downloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm.models as timm_models
import torch
import torchvision
import transformers
from torch import Tensor, nn

CLASSES = 5
WORDS = 23
Batch = Any


@dataclass(frozen=True)
class Tiny:
    """One model.

    Attributes:
        name: For test ids.
        make: Makes it, the same one each time.
        batch: Inputs for so many examples: a tensor, or a mapping of arguments.
        sites: How many attentions it has, of each kind.
    """

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    sites: dict[str, int]

    @property
    def attentions(self) -> int:
        return sum(self.sites.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def __str__(self) -> str:
        return self.name


def logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def run(model: nn.Module, x: Batch) -> Tensor:
    """Logits of a batch as `Tiny.batch` makes it."""
    return logits(model(**x) if isinstance(x, dict) else model(x))


def liven(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights large enough for every perturbation to show; libraries begin with tiny ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * 0.5 * min(1.0, 4 / parameter.shape[-1] ** 0.5))
            else:
                parameter.add_(0.1 * noise)
    return model


def images(batch: int, size: int = 16) -> Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(batch))


def _ids(batch: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + batch)
    return torch.randint(3, WORDS, (batch, length), generator=generator)


def words(batch: int, length: int = 6, padded: int = 2) -> dict[str, Tensor]:
    """Token ids whose last example ends in padding."""
    mask = torch.ones(batch, length, dtype=torch.long)
    if padded:
        mask[-1, -padded:] = 0
    return {"input_ids": _ids(batch, length), "attention_mask": mask}


def pairs(batch: int) -> dict[str, Tensor]:
    return {**words(batch), "decoder_input_ids": _ids(batch, 5, seed=7)}


class Sentences(nn.Module):
    """A classifier of sentences on `nn.TransformerEncoder`, which is given a padding mask."""

    def __init__(self, batch_first: bool = True, heads: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        layer = nn.TransformerEncoderLayer(
            8, heads, 12, dropout=0.0, batch_first=batch_first, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)
        self.batch_first = batch_first

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embed(input_ids)
        padding = None if attention_mask is None else attention_mask == 0
        if self.batch_first:
            return self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])
        return self.head(self.encoder(x.transpose(0, 1), src_key_padding_mask=padding)[0])


class Translator(nn.Module):
    """`nn.Transformer`: encoder, causal decoder and cross-attention of torch."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.body = nn.Transformer(8, 2, 2, 2, 12, dropout=0.0, batch_first=batch_first)
        self.head = nn.Linear(8, WORDS)
        self.batch_first = batch_first

    def forward(
        self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        source, target = self.embed(input_ids), self.embed(decoder_input_ids)
        if not self.batch_first:
            source, target = source.transpose(0, 1), target.transpose(0, 1)
        padding = None if attention_mask is None else attention_mask == 0
        causal = nn.Transformer.generate_square_subsequent_mask(decoder_input_ids.shape[1])
        x = self.body(
            source, target, tgt_mask=causal, src_key_padding_mask=padding,
            memory_key_padding_mask=padding, tgt_is_causal=True,
        )  # fmt: skip
        return self.head(x if self.batch_first else x.transpose(0, 1))


def _timm(cls: Callable[..., nn.Module], **options: Any) -> nn.Module:
    common = {"img_size": 16, "num_classes": CLASSES, "mlp_ratio": 1.5}
    return cls(**{**common, **options})


def vit(**options: Any) -> nn.Module:
    defaults = {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return _timm(timm_models.VisionTransformer, **{**defaults, **options})


def vit_unfused() -> nn.Module:
    model = vit()
    for block in model.blocks:  # type: ignore[union-attr]
        block.attn.fused_attn = False
    return model


def deit() -> nn.Module:
    return _timm(
        timm_models.VisionTransformerDistilled, patch_size=8, embed_dim=16, depth=2, num_heads=2
    )


def beit() -> nn.Module:
    return _timm(
        timm_models.Beit, patch_size=8, embed_dim=16, depth=2, num_heads=2, use_rel_pos_bias=True
    )


def eva(**options: Any) -> nn.Module:
    defaults = {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return _timm(timm_models.Eva, use_rot_pos_emb=True, **{**defaults, **options})


def swin() -> nn.Module:
    """Two blocks with four windows of 4 x 4 each, the second one with shifted windows."""
    return _timm(
        timm_models.SwinTransformer, patch_size=2, window_size=4, embed_dim=8, depths=(2,),
        num_heads=(2,), drop_path_rate=0.0,
    )  # fmt: skip


def torchvision_vit() -> nn.Module:
    return torchvision.models.VisionTransformer(16, 8, 2, 2, 16, 24, num_classes=CLASSES)


_TEXT = {
    "vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 16,
}  # fmt: skip
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def bert(implementation: str = "sdpa", **options: Any) -> nn.Module:
    config = transformers.BertConfig(
        **_TEXT, **_NO_DROPOUT, num_labels=CLASSES, attn_implementation=implementation, **options
    )
    return transformers.BertForSequenceClassification(config)


def roberta() -> nn.Module:
    config = transformers.RobertaConfig(
        **_TEXT, **_NO_DROPOUT, num_labels=CLASSES, attn_implementation="sdpa"
    )
    return transformers.RobertaForSequenceClassification(config)


def hf_vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=16, patch_size=8, num_labels=CLASSES, **_NO_DROPOUT,
        attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def marian(implementation: str = "sdpa") -> nn.Module:
    config = transformers.MarianConfig(
        vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, dropout=0.0,
        max_position_embeddings=16, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        forced_eos_token_id=1, attn_implementation=implementation,
    )  # fmt: skip
    return transformers.MarianMTModel(config)


def t5(implementation: str = "sdpa") -> nn.Module:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=2,
        num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, attn_implementation=implementation,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def llama(implementation: str = "sdpa") -> nn.Module:
    options = {**_TEXT, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**options, attn_implementation=implementation)
    return transformers.LlamaForCausalLM(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=16, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


_ENCODER = {"encoder-self": 2}
_BOTH = {"encoder-self": 2, "decoder-self": 2, "cross": 2}

ALL = (
    Tiny("vit", vit, images, _ENCODER),
    Tiny("vit-unfused", vit_unfused, images, _ENCODER),
    Tiny("deit-distilled", deit, images, _ENCODER),
    Tiny("beit", beit, images, _ENCODER),
    Tiny("eva", eva, images, _ENCODER),
    Tiny("eva-split", partial(eva, qkv_fused=False), images, _ENCODER),
    Tiny("swin", swin, images, _ENCODER),
    Tiny("torchvision-vit", torchvision_vit, images, _ENCODER),
    Tiny("torch-encoder", Sentences, words, _ENCODER),
    Tiny("torch-encoder-seq-first", partial(Sentences, False), words, _ENCODER),
    Tiny("torch-transformer", Translator, pairs, _BOTH),
    Tiny("torch-transformer-seq-first", partial(Translator, False), pairs, _BOTH),
    Tiny("bert", bert, words, _ENCODER),
    Tiny("bert-eager", partial(bert, "eager"), words, _ENCODER),
    Tiny("roberta", roberta, words, _ENCODER),
    Tiny("hf-vit", hf_vit, lambda n: {"pixel_values": images(n)}, _ENCODER),
    Tiny("marian", marian, pairs, _BOTH),
    Tiny("t5", t5, pairs, _BOTH),
    Tiny("t5-eager", partial(t5, "eager"), pairs, _BOTH),
    Tiny("llama", llama, words, {"decoder-self": 2}),
    Tiny("llama-eager", partial(llama, "eager"), words, {"decoder-self": 2}),
    Tiny("gpt2", gpt2, words, {"decoder-self": 2}),
)
BY_NAME = {tiny.name: tiny for tiny in ALL}


def build(name: str) -> tuple[nn.Module, Batch]:
    """A model with lively weights, in training mode, and a batch of three."""
    tiny = BY_NAME[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return liven(tiny.make()).train(), tiny.batch(3)
