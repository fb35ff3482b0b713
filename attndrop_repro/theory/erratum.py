"""An erratum: what is printed, what is true, and a check that computes both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Numbers = dict[str, float]


@dataclass(frozen=True)
class Finding:
    """What a check computed.

    Attributes:
        printed: What the printed statement gives, in words with the computed numbers.
        true: What holds instead, likewise.
        confirmed: Whether the computation bears the erratum out.
        numbers: The computed numbers by name.
    """

    printed: str
    true: str
    confirmed: bool
    numbers: Numbers = field(default_factory=dict)


@dataclass(frozen=True)
class Erratum:
    """One entry of the list.

    Attributes:
        id: E1 to E17 (AttentionDrop), X1 to X8 (explicit dropout).
        title: In a few words.
        place: Where it is printed.
        consequence: What this product does about it.
        check: Computes both sides; deterministic.
    """

    id: str
    title: str
    place: str
    consequence: str
    check: Callable[[], Finding]


_ERRATA: dict[str, Erratum] = {}


def erratum(
    id: str, title: str, place: str, consequence: str
) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Decorator: registers a check; an id given twice is an error."""

    def add(check: Callable[[], Finding]) -> Callable[[], Finding]:
        if id in _ERRATA and _ERRATA[id].check.__qualname__ != check.__qualname__:
            raise ValueError(f"two errata are called {id}")
        _ERRATA[id] = Erratum(id, title, place, consequence, check)
        return check

    return add


def errata() -> list[Erratum]:
    """All errata: E1 to E17, then X1 to X8."""
    from attndrop_repro.theory import (  # noqa: F401 - importing registers them
        errata_analysis,
        errata_claims,
        errata_listings,
        errata_penalties,
        errata_setup,
    )

    return sorted(_ERRATA.values(), key=lambda entry: (entry.id[0], int(entry.id[1:])))
