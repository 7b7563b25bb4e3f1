"""From masses to weights that add up to exactly 1,000,000: exact until the last step, then largest remainders. Pure.

Ties break by the UTF-8 bytes of the hotkey's text. Canonical SS58 addresses of format 42 have one length and an
ascending alphabet, so that their text sorts as their public keys do; free-text hotkeys of the sim profile need no
rule of their own.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction

from events.types.policy import Policy
from events.types.weights import Weight
from hypercluster.domain.kernel import PPM

type Shares = dict[str, Fraction]


def weights_of(masses: Mapping[str, int], policy: Policy, allowed: Collection[str] | None) -> tuple[Weight, ...]:
    """Weights by (-ppm, hotkey bytes), none of them 0; empty where no mass is left.

    masses: hotkey -> mass. allowed: the only hotkeys that may get weight; None allows all.
    """
    kept = {hotkey: mass for hotkey, mass in masses.items() if mass > 0 and (allowed is None or hotkey in allowed)}
    heaviest = by_mass(kept)[: policy.weight_top_k]
    left = _without_dust({hotkey: kept[hotkey] for hotkey in heaviest}, policy.weight_dust_ppm)
    if not left:
        return ()
    whole = _rounded(_capped(left, policy.weight_cap_ppm), left)
    ordered = sorted(whole, key=lambda hotkey: (-whole[hotkey], hotkey_bytes(hotkey)))
    return tuple(Weight(hotkey=hotkey, ppm=whole[hotkey]) for hotkey in ordered if whole[hotkey] > 0)


def by_mass(masses: Mapping[str, int]) -> list[str]:
    """Hotkeys by (-mass, hotkey bytes)."""
    return sorted(masses, key=lambda hotkey: (-masses[hotkey], hotkey_bytes(hotkey)))


def hotkey_bytes(hotkey: str) -> bytes:
    """What ties break by."""
    return hotkey.encode()


def _without_dust(masses: Mapping[str, int], dust_ppm: int) -> dict[str, int]:
    """Those whose share of the sum is not below the dust."""
    total = sum(masses.values())
    return {hotkey: mass for hotkey, mass in masses.items() if mass * PPM >= dust_ppm * total}


def _capped(masses: Mapping[str, int], cap_ppm: int) -> Shares:
    """Shares of 1 in proportion to mass, none above max(cap, 1/n); what is cut off goes to those below the cap."""
    cap = max(Fraction(cap_ppm, PPM), Fraction(1, len(masses)))
    shares: Shares = {}
    open_masses = dict(masses)
    while open_masses:
        per_mass = (1 - len(shares) * cap) / sum(open_masses.values())
        above = [hotkey for hotkey, mass in open_masses.items() if mass * per_mass > cap]
        if not above:
            return shares | {hotkey: mass * per_mass for hotkey, mass in open_masses.items()}
        for hotkey in above:
            shares[hotkey] = cap
            del open_masses[hotkey]
    return shares


def _rounded(shares: Shares, masses: Mapping[str, int]) -> dict[str, int]:
    """Whole ppm: rounded down, then one more each by largest remainder, until the sum is 1,000,000."""
    whole = {hotkey: share * PPM // 1 for hotkey, share in shares.items()}
    rest = {hotkey: share * PPM - whole[hotkey] for hotkey, share in shares.items()}
    missing = PPM - sum(whole.values())
    order = sorted(rest, key=lambda hotkey: (-rest[hotkey], -masses[hotkey], hotkey_bytes(hotkey)))
    for hotkey in order[:missing]:
        whole[hotkey] += 1
    return whole
