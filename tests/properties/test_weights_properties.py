"""The way from masses to weights: exact sums, real caps, order kept, whatever the masses are."""

import hashlib
from fractions import Fraction
from random import Random

import pytest
from msgspec.structs import replace

from events.types.weights import Weight
from hypercluster.domain.identity import ss58
from hypercluster.domain.policy.release import POLICY_V1
from hypercluster.domain.weights.pipeline import hotkey_bytes, weights_of

PPM = 1_000_000
CASES = 10_000


def address(number: int) -> str:
    return ss58.encode(hashlib.sha256(number.to_bytes(4, "big")).digest())


ADDRESSES = [address(number) for number in range(300)]


def ppm(weights: tuple[Weight, ...]) -> dict[str, int]:
    return {weight.hotkey: weight.ppm for weight in weights}


@pytest.mark.parametrize(
    ("cap_ppm", "expected"),
    [
        pytest.param(1_000_000, {"a": 900_000, "b": 50_000, "c": 50_000}, id="no cap"),
        pytest.param(500_000, {"a": 500_000, "b": 250_000, "c": 250_000}, id="half"),
        pytest.param(250_000, {"a": 333_334, "b": 333_333, "c": 333_333}, id="a cap below 1/n is 1/n"),
    ],
)
def test_the_worked_examples(cap_ppm, expected):
    policy = replace(POLICY_V1, weight_cap_ppm=cap_ppm)
    assert ppm(weights_of({"a": 90, "b": 5, "c": 5}, policy, None)) == expected


def case(random: Random) -> tuple[dict[str, int], object, set[str] | None]:
    count = random.choice((0, 1, 2, 3, 5, 8, 13, 40))
    highest = random.choice((3, 1_000, 10**6, 10**12, 10**18))
    masses = {hotkey: random.randint(-1, highest) for hotkey in random.sample(ADDRESSES, count)}
    policy = replace(
        POLICY_V1,
        weight_cap_ppm=random.choice((1, 100_000, 250_000, 333_333, 500_000, 999_999, PPM)),
        weight_top_k=random.choice((1, 2, 7, 256)),
        weight_dust_ppm=random.choice((0, 1, 1_000, 300_000)),
    )
    allowed = None if random.random() < 0.7 else set(random.sample(ADDRESSES, 200))
    return masses, policy, allowed


def expected_entries(masses, policy, allowed) -> dict[str, int]:
    """Who is left before the cap, by a plain reading."""
    kept = {h: m for h, m in masses.items() if m > 0 and (allowed is None or h in allowed)}
    kept = dict(sorted(kept.items(), key=lambda item: (-item[1], ss58.decode(item[0])))[: policy.weight_top_k])
    total = sum(kept.values())
    return {h: m for h, m in kept.items() if Fraction(m, total) >= Fraction(policy.weight_dust_ppm, PPM)}


def test_ten_thousand_random_cases():
    random = Random(20_261_201)
    empty = 0
    for _ in range(CASES):
        masses, policy, allowed = case(random)
        weights = weights_of(masses, policy, allowed)
        left = expected_entries(masses, policy, allowed)
        shuffled = list(masses.items())
        random.shuffle(shuffled)
        assert weights_of(dict(shuffled), policy, allowed) == weights
        empty += not weights
        if not left:
            assert weights == ()
            continue
        found = ppm(weights)
        assert all(type(value) is int and value > 0 for value in found.values())
        assert sum(found.values()) == PPM
        assert found.keys() <= left.keys()
        cap = max(Fraction(policy.weight_cap_ppm, PPM), Fraction(1, len(left))) * PPM
        assert max(found.values()) < cap + 1
        assert cap.denominator > 1 or max(found.values()) <= cap
        by_mass = sorted(left, key=lambda hotkey: (-left[hotkey], hotkey_bytes(hotkey)))
        values = [found.get(hotkey, 0) for hotkey in by_mass]
        assert values == sorted(values, reverse=True)
        assert [weight.hotkey for weight in weights] == sorted(found, key=lambda h: (-found[h], hotkey_bytes(h)))
    assert 0 < empty < CASES // 2


def test_without_a_cap_every_weight_is_its_share_within_one_ppm():
    random = Random(7)
    for _ in range(500):
        masses = {hotkey: random.randint(1, 10**9) for hotkey in random.sample(ADDRESSES, 30)}
        total = sum(masses.values())
        found = ppm(weights_of(masses, replace(POLICY_V1, weight_dust_ppm=0), None))
        assert all(abs(found.get(h, 0) - Fraction(m * PPM, total)) < 1 for h, m in masses.items())


def test_what_the_cap_cuts_off_is_shared_by_mass_among_the_others():
    policy = replace(POLICY_V1, weight_cap_ppm=400_000)
    assert ppm(weights_of({"a": 70, "b": 20, "c": 10}, policy, None)) == {"a": 400_000, "b": 400_000, "c": 200_000}
    # b is pushed over the cap by what a loses, and hands the excess on
    assert ppm(weights_of({"a": 60, "b": 30, "c": 6, "d": 4}, policy, None)) == {
        "a": 400_000,
        "b": 400_000,
        "c": 120_000,
        "d": 80_000,
    }


def test_dust_is_dropped_and_the_rest_renormalised():
    policy = replace(POLICY_V1, weight_dust_ppm=10_000)
    assert ppm(weights_of({"a": 9_900, "b": 100, "c": 99}, policy, None)) == {"a": PPM}
    assert ppm(weights_of({"a": 99, "b": 1}, policy, None)) == {"a": 990_000, "b": 10_000}


def test_an_exact_share_is_never_lifted():
    # a is exactly a half; the ppm that is missing goes to one of the thirds
    masses = {"a": 3, "b": 1, "c": 1, "d": 1}
    assert ppm(weights_of(masses, POLICY_V1, None)) == {"a": 500_000, "b": 166_667, "c": 166_667, "d": 166_666}


def test_equal_masses_tie_by_the_bytes_of_the_key():
    by_key = sorted(ADDRESSES, key=ss58.decode)
    policy = replace(POLICY_V1, weight_top_k=7)
    weights = weights_of(dict.fromkeys(ADDRESSES, 5), policy, None)
    assert [weight.hotkey for weight in weights] == by_key[:7]
    assert [weight.ppm for weight in weights] == [142_858] + [142_857] * 6


def test_free_text_hotkeys_tie_by_their_bytes():
    policy = replace(POLICY_V1, weight_top_k=1)
    assert ppm(weights_of({"b": 1, "a": 1, "ä": 1}, policy, None)) == {"a": PPM}


def test_nobody_allowed_gives_an_empty_map():
    assert weights_of({"a": 1}, POLICY_V1, ()) == ()
    assert weights_of({}, POLICY_V1, None) == ()
    assert weights_of({"a": 0}, POLICY_V1, None) == ()
