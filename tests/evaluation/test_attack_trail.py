"""Which iterates count as known: cycles, and meetings with earlier restarts that went as far."""

from __future__ import annotations

import torch

from attndrop_repro.evaluation.attack_trail import Trail

A, B, C, D, E = (torch.full((1, 1, 2, 2), value) for value in (0.1, 0.2, 0.3, 0.4, 0.5))
ROW = torch.tensor([0])


def walk(trail: Trail, restart: int, images: list[torch.Tensor]) -> list[bool]:
    """An attack on example 0: after each step, whether it may end there."""
    return [bool(trail.known(ROW, image, restart, step + 1)) for step, image in enumerate(images)]


def test_a_cycle_of_any_length_ends_an_attack():
    for length in (1, 2, 3):
        cycle = [B, C, D][:length]
        assert walk(Trail(A, 1, 9), 0, [A, *cycle, cycle[0]]) == [False] * (1 + length) + [True]


def test_what_led_into_a_cycle_is_known_whenever_it_comes():
    trail = Trail(A, 2, 9)
    walk(trail, 0, [A, B, C, D, C])
    assert walk(trail, 1, [B]) == [True], "earlier than before, but all that follows was judged"


def test_what_led_into_such_an_attack_too():
    trail = Trail(A, 3, 9)
    walk(trail, 0, [A, B, B])
    assert walk(trail, 1, [C, D, A]) == [False, False, True]
    assert walk(trail, 2, [D]) == [True]


def test_without_a_cycle_only_as_many_steps_as_were_followed():
    trail = Trail(A, 3, 4)
    walk(trail, 0, [A, B, C, D])  # all its steps
    assert walk(trail, 1, [B]) == [False], "one more step than restart 0 had left there"
    assert walk(trail, 2, [E, B]) == [False, True]


def test_every_example_has_a_trail_of_its_own():
    trail = Trail(torch.cat([A, B]), 1, 3)
    both = torch.tensor([0, 1])
    assert not trail.known(both, torch.cat([C, D]), 0, 1).any()
    assert trail.known(both, torch.cat([C, E]), 0, 2).tolist() == [True, False]
    assert trail.known(torch.tensor([1]), D, 0, 3).tolist() == [True]


def test_images_that_differ_little_are_told_apart():
    """In each precision, by one pixel, in one bit or its highest ones; black is an image."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        black = torch.zeros(1, 1, 8, 8, dtype=dtype)
        others = [black]
        for pixel in range(64):
            for value in (torch.finfo(dtype).tiny, 0.5, 1.0, -0.5):
                image = black.clone()
                image.view(-1)[pixel] = value
                others.append(image)
        trail = Trail(black, 1, len(others) + 1)
        assert not any(walk(trail, 0, others))
        assert walk(trail, 0, [black]) == [True]
