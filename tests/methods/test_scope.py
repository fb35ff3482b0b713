"""Scope (A7), draws shared by all ranks, and sets of keys side by side."""

from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from support.attention import make_call, visible

from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods import Site, Step, build
from attndrop_repro.methods.scope import Scope, TokenScope
from attndrop_repro.methods.shared_draw import same_on_all_ranks
from attndrop_repro.methods.side_by_side import KeySet, side_by_side


def sites(*kinds: str) -> list[Site]:
    return [
        Site("attention", i, len(kinds), f"layer.{i}", kind=kind)  # type: ignore[arg-type]
        for i, kind in enumerate(kinds)
    ]


def test_covers() -> None:
    encoder, decoder, cross = sites("encoder-self", "decoder-self", "cross")
    assert [Scope().covers(s) for s in (encoder, decoder, cross)] == [True, False, False]
    assert Scope(kinds=["decoder-self", "cross"], layers=[1]).covers(decoder)
    assert not Scope(kinds=["cross"], layers=[1]).covers(cross)
    assert not Scope(layers=[]).covers(encoder)
    assert Scope(kinds="cross", layers=2).covers(cross)


@pytest.mark.parametrize(
    "name", ["attentiondrop-blur", "attentiondrop-hard", "dropkey", "drophead", "dropdim"]
)
def test_a_scope_that_finds_nothing_is_refused(name: str) -> None:
    decoder = sites("decoder-self", "decoder-self")
    with pytest.raises(AttndropError, match=r"on encoder-self attention.*\(decoder-self\)"):
        build(name).prepare(decoder)
    with pytest.raises(UsageError, match=r"layers = \[0, 2\].* are 0 to 1"):
        build(name, {"kinds": ["decoder-self"], "layers": [0, 2]}).prepare(decoder)
    build(name, {"kinds": ["decoder-self"], "layers": [1]}).prepare(decoder)
    build(name).prepare(sites("encoder-self", "cross"))


def test_open_to_change() -> None:
    call = make_call(queries=3, keys=4, prefix_tokens=1)
    assert TokenScope().open_to_change(call) is None
    keys = TokenScope(skip_prefix_keys=True).open_to_change(call)
    assert keys.tolist() == [[False, True, True, True]]
    queries = TokenScope(skip_prefix_queries=True).open_to_change(call)
    assert queries.expand(3, 4).tolist() == [[False] * 4, [True] * 4, [True] * 4]
    both = TokenScope(skip_prefix_keys=True, skip_prefix_queries=True).open_to_change(call)
    assert both.tolist() == [[False] * 4, [False, True, True, True], [False, True, True, True]]
    none = TokenScope(skip_prefix_keys=True).open_to_change(make_call())
    assert none is None


@pytest.mark.parametrize("bias", [None, (2, 1, 1, 6), (1, 3, 6, 6), (3, 6, 1)])
def test_the_same_keys_twice_change_nothing(bias: tuple | None) -> None:
    call = make_call(causal=True, bias=bias, allowed=torch.arange(6) < 5)
    near = torch.ones(6, 6, dtype=torch.bool).tril(-2)
    halves = [KeySet(call.k, call.bias, near), KeySet(call.k, call.bias, ~near)]
    mask = visible(call)
    double = side_by_side(call, halves, mask)
    assert double.shape == (2, 3, 6, 12)
    torch.testing.assert_close(double.run(), call.run(), rtol=0, atol=1e-14)
    assert side_by_side(call, [KeySet(call.k, call.bias, None)], mask).causal


def test_alone_a_draw_is_its_own() -> None:
    draw = torch.rand(3)
    assert same_on_all_ranks(draw) is draw


def _rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    torch.manual_seed(rank)
    call = make_call()
    blur, keys = build("attentiondrop-blur", {"sigma_max": 2.0}), build("dropkey", {"p": 0.5})
    found = []
    for _ in range(2):
        blur.begin_step(Step(attention=[call.site]))
        found.append(blur.rewrite(call).k.detach())
    found.append(visible(keys.rewrite(call)))
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_ranks_share_sigma_and_nothing_else(tmp_path: Path) -> None:
    mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[2], second[2])
