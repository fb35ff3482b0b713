"""Errata of the AttentionDrop paper's set-up and cost: E9, E10, E17."""

from __future__ import annotations

import torch

from attndrop_repro.theory.claims import claims
from attndrop_repro.theory.erratum import Finding, erratum


@erratum(
    "E9",
    "The deterministic flags contradict each other",
    "appendix B, deterministic flags and cuDNN autotuning",
    "deterministic algorithms on, benchmark off; exceptions are named in the provenance",
)
def e9() -> Finding:
    """The printed statements in the printed order."""
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark
    try:
        flags.deterministic, flags.benchmark = True, False
        first = flags.benchmark
        flags.benchmark = True
        after = flags.deterministic, flags.benchmark
    finally:
        flags.deterministic, flags.benchmark = before
    return Finding(
        "deterministic = True, benchmark = False; two pages on, benchmark = True",
        f"after both, deterministic = {after[0]} and benchmark = {after[1]}: the autotuner may "
        "choose other kernels in every run",
        first is False and after == (True, True),
    )


@erratum(
    "E10",
    "Consistency cannot cost 3 % of memory and half of the plain throughput",
    "section 3.3 ('2x compute/memory') and the table of appendix C",
    "`attndrop bench` measures",
)
def e10() -> Finding:
    """The table's own rows against each other."""
    rows = {row["method"]: row for row in claims()["attentiondrop"]["throughput"]["rows"]}
    plain, both = rows["none"], rows["attentiondrop-blur+consistency"]
    memory = both["memory"] / plain["memory"]
    half = plain["images_per_second"] / 2
    limits = [rows[f"attentiondrop-{v}"]["images_per_second"] / 2 for v in ("hard", "blur")]
    rate = both["images_per_second"]
    return Finding(
        f"text: 2 x memory; table: {memory:.2f} x, and {rate} images a second, half of plain's "
        f"{plain['images_per_second']}",
        f"two passes with hard masking or the blur could give at most {limits[0]:.0f} or "
        f"{limits[1]:.0f} by the same table",
        rate == half and rate > max(limits) and memory < 1.1,
        {"memory_ratio": memory, "claimed": rate, "limit_hard": limits[0], "limit_blur": limits[1]},
    )


@erratum(
    "E17",
    "The complexities are per row, not per head",
    "sections 3.1 and 3.2, and the memory of appendix C",
    "the blur is done on the keys: n w d for all rows together",
)
def e17() -> Finding:
    """Operations of a head at n = 197, and the bytes of the masks alone."""
    n, w, heads, layers, batch = 197, 5, 12, 12, 256
    row, head = n * w, n * n * w
    masks = batch * heads * layers * n * n * 2 / 1e9
    rows = {row["method"]: row for row in claims()["attentiondrop"]["throughput"]["rows"]}
    claimed = rows["attentiondrop-hard"]["memory"] - rows["none"]["memory"]
    return Finding(
        f"O(n w) per head: {row} multiply-adds at n 197, w 5; hard masking adds {claimed:.1f} GB",
        f"a head has n rows: {head}, that is {n} times as many; the masks of one step at batch 256 "
        f"alone are {masks:.1f} GB in fp16",
        head == n * row and masks > 10 * claimed,
        {"per_row": row, "per_head": head, "masks_gb": masks, "claimed_gb": claimed},
    )
