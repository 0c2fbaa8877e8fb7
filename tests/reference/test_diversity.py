"""How different members are: numbers worked out by hand, and the updates themselves, built."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from torch import Tensor

from training.diversity import (
    cosines,
    diversity,
    kinship,
    norms,
    principal_angles,
    stable_ranks,
)

OUTPUTS, INPUTS, RANK = 48, 40, 6

Adapter = dict[str, Tensor]


def of(update: Tensor, name: str = "m") -> Adapter:
    """One module, whose B A is this matrix: A is the identity."""
    return {f"{name}.lora_A.weight": torch.eye(update.shape[1]), f"{name}.lora_B.weight": update}


def diagonal(*values: float) -> Adapter:
    return of(torch.diag(torch.tensor(values)))


def adapter(seed: int, dtype: torch.dtype = torch.float32) -> Adapter:
    """Two modules with falling spectra, as training leaves them."""
    dice = torch.Generator().manual_seed(seed)
    found: Adapter = {}
    for name, outputs, inputs in (("up", OUTPUTS, INPUTS), ("down", INPUTS, OUTPUTS)):
        a = torch.randn(RANK, inputs, generator=dice)
        b = torch.randn(outputs, RANK, generator=dice) / torch.arange(1, RANK + 1)
        found |= {f"{name}.lora_A.weight": a.to(dtype), f"{name}.lora_B.weight": b.to(dtype)}
    return found


def updates(state: Adapter) -> list[Tensor]:
    """B A of each module, in float64."""
    names = [key.removesuffix(".lora_A.weight") for key in state if key.endswith("A.weight")]
    factors = [[state[f"{name}.lora_{f}.weight"].double() for f in "BA"] for name in names]
    return [b @ a for b, a in factors]


def regauged(state: Adapter, seed: int) -> Adapter:
    """The same B A from other factors: (B R)(R^-1 A), with a bad condition."""
    dice = torch.Generator().manual_seed(seed)
    found: Adapter = {}
    for key in [key for key in state if key.endswith("A.weight")]:
        a, b = state[key].double(), state[key.replace("_A", "_B")].double()
        r = torch.linalg.qr(torch.randn(len(a), len(a), generator=dice, dtype=torch.float64)).Q
        r = r * torch.logspace(-1, 1, len(a), dtype=torch.float64)
        found |= {key: torch.linalg.solve(r, a), key.replace("_A", "_B"): b @ r}
    return found


# By hand.


def test_orthogonal_updates_have_cosine_0_and_angles_of_90_degrees() -> None:
    one, other = diagonal(3.0, 0.0, 0.0), diagonal(0.0, 4.0, 0.0)
    assert cosines([one, other]).tolist() == [[1, 0], [0, 1]]
    assert principal_angles(one, other)["m"].tolist() == [90]
    assert norms([one, other]).tolist() == [3, 4]


def test_the_cosine_of_two_matrices() -> None:
    # <diag(1, 2), diag(2, 1)> = 4, both of norm sqrt 5; against the opposite it is -1.
    found = cosines([diagonal(1.0, 2.0), diagonal(2.0, 1.0), diagonal(-1.0, -2.0)])
    wanted = torch.tensor([[1, 0.8, -1], [0.8, 1, -0.8], [-1, -0.8, 1]], dtype=torch.float64)
    torch.testing.assert_close(found, wanted)


def test_a_cosine_is_over_all_modules_at_once() -> None:
    # 3 and 4 against 3 and -4: (9 - 16) / 25.
    one = of(torch.tensor([[3.0]]), "x") | of(torch.tensor([[4.0]]), "y")
    other = of(torch.tensor([[3.0]]), "x") | of(torch.tensor([[-4.0]]), "y")
    assert cosines([one, other])[0, 1].item() == pytest.approx(-7 / 25)
    assert norms([one, other]).tolist() == [5, 5]


@pytest.mark.parametrize("degrees", [0.0, 1e-4, 1.0, 30.0, 45.0, 60.0, 89.0, 90.0])
def test_an_angle_between_two_planes_that_share_a_line(degrees: float) -> None:
    """Spanned by x and y, and by x and y turned towards z: 0 and the turn, small ones too."""
    turn = math.radians(degrees)
    wide = torch.float64
    first = torch.tensor([[2, 0], [0, 5], [0, 0]], dtype=wide)
    second = torch.tensor([[-7, 1], [0, math.cos(turn)], [0, math.sin(turn)]], dtype=wide)
    found = principal_angles(of(first), of(second))["m"]
    torch.testing.assert_close(found, torch.tensor([0, degrees], dtype=wide), atol=1e-9, rtol=1e-9)


def test_angles_are_as_many_as_the_smaller_rank() -> None:
    line, plane = diagonal(0.0, 2.0, 0.0), diagonal(1.0, 1.0, 0.0)
    assert principal_angles(line, plane)["m"].tolist() == [0]
    assert principal_angles(plane, line)["m"].tolist() == [0]
    assert principal_angles(plane, diagonal(0.0, 0.0, 0.0))["m"].tolist() == []


def test_the_stable_rank_of_a_diagonal() -> None:
    # (16 + 4 + 4) / 16
    assert stable_ranks(diagonal(4.0, 2.0, 2.0)) == {"m": pytest.approx(1.5)}
    assert stable_ranks(diagonal(3.0, 3.0, 3.0, 0.0)) == {"m": pytest.approx(3)}
    assert math.isnan(stable_ranks(diagonal(0.0, 0.0))["m"])


def test_the_numbers_of_a_role() -> None:
    # Cosines .8, 0 and .6 of diag(1, 2) with diag(2, 1), and so on; norms 5^.5, 5^.5, 3. The planes
    # are one plane, in which the line lies: angles 0.
    role = [diagonal(1.0, 2.0), diagonal(2.0, 1.0), diagonal(3.0, 0.0)]
    found = diversity(role)
    cosine = (0.8 + 1 / math.sqrt(5) + 2 / math.sqrt(5)) / 3
    assert found.cosine == pytest.approx(cosine)
    assert found.stable_rank == pytest.approx((5 / 4 + 5 / 4 + 1) / 3)
    assert found.norm == pytest.approx((2 * math.sqrt(5) + 3) / 3)
    assert found.angle == pytest.approx(0, abs=1e-6)


def test_the_angle_of_a_role_is_a_mean_over_pairs_and_directions() -> None:
    # x with xy: 0. x with z: 90. xy with z: 90, one direction only.
    role = [diagonal(1.0, 0.0, 0.0), diagonal(1.0, 1.0, 0.0), diagonal(0.0, 0.0, 2.0)]
    assert diversity(role).angle == pytest.approx(60)
    # xy with xz: 0 and 90; with x itself: 0.
    role = [diagonal(1.0, 3.0, 0.0), diagonal(2.0, 0.0, 1.0)]
    assert diversity(role).angle == pytest.approx(45)
    assert diversity([diagonal(1.0, 0.0)]).angle is None


def test_a_child_beside_its_parents() -> None:
    # <diag(3, 4), diag(1, 0)> = 3 of norms 5 and 1; with diag(0, 2): 8 of 5 and 2.
    found = kinship(diagonal(3.0, 4.0), [diagonal(1.0, 0.0), diagonal(0.0, 2.0)])
    assert found.cosines == pytest.approx([0.6, 0.8])
    assert (found.norm, found.parents_norms) == (pytest.approx(5), pytest.approx([1, 2]))
    unborn = kinship(diagonal(0.0, 0.0), [diagonal(1.0, 0.0)])
    assert math.isnan(unborn.cosines[0])
    assert (unborn.norm, unborn.parents_norms) == (0, [1])


def test_members_without_an_update_have_no_cosine() -> None:
    fresh = diagonal(0.0, 0.0)
    found = asdict(diversity([fresh, fresh]))
    assert found == {"cosine": None, "angle": None, "stable_rank": None, "norm": 0}
    assert diversity([diagonal(1.0, 2.0)]).cosine is None
    mixed = diversity([diagonal(1.0, 2.0), fresh, diagonal(2.0, 1.0)])
    assert mixed.cosine == pytest.approx(0.8)
    assert mixed.norm == pytest.approx(2 * math.sqrt(5) / 3)
    assert cosines([fresh, diagonal(1.0, 1.0)]).isnan().tolist() == [[True, True], [True, False]]
    json.dumps(asdict(mixed), allow_nan=False)


# Against the updates themselves.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_are_those_of_the_products(dtype: torch.dtype) -> None:
    members = [adapter(seed, dtype) for seed in range(3)]
    members.append({key: tensor * 1.01 for key, tensor in members[0].items()})
    rows = torch.stack([torch.cat([u.flatten() for u in updates(m)]) for m in members])
    torch.testing.assert_close(norms(members), rows.norm(dim=1))
    wanted = rows @ rows.T / (rows.norm(dim=1) * rows.norm(dim=1)[:, None])
    torch.testing.assert_close(cosines(members), wanted)
    for update, found in zip(updates(members[1]), stable_ranks(members[1]).values(), strict=True):
        singular = torch.linalg.svdvals(update)
        assert found == pytest.approx((singular.square().sum() / singular[0] ** 2).item())
    pairs = zip(updates(members[1]), updates(members[2]), strict=True)
    for (one, other), found in zip(
        pairs, principal_angles(members[1], members[2]).values(), strict=True
    ):
        bases = [torch.linalg.svd(update).U[:, :RANK] for update in (one, other)]
        shared = torch.linalg.svdvals(bases[0].T @ bases[1])
        torch.testing.assert_close(found.deg2rad().cos(), shared)
    summary = diversity(members)
    apart = wanted[*torch.triu_indices(4, 4, 1)]
    assert summary.cosine == pytest.approx(apart.mean().item())
    assert summary.norm == pytest.approx(rows.norm(dim=1).mean().item())


def test_the_same_update_in_another_gauge_is_the_same_member() -> None:
    one = adapter(0)
    other = regauged(one, 1)
    assert cosines([one, other])[0, 1].item() == pytest.approx(1, abs=1e-12)
    for angles in principal_angles(one, other).values():
        assert len(angles) == RANK
        assert angles.abs().max() < 1e-6
    assert stable_ranks(other) == pytest.approx(stable_ranks(one))
    assert norms([one])[0].item() == pytest.approx(norms([other])[0].item())


def test_factors_in_training_are_read_without_a_graph() -> None:
    members = [
        {key: tensor.requires_grad_() for key, tensor in adapter(seed).items()} for seed in (0, 1)
    ]
    assert not cosines(members).requires_grad
    assert not norms(members).requires_grad
    assert not any(angles.requires_grad for angles in principal_angles(*members).values())


def test_members_of_other_shapes_or_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="wanted parents of the same modules, rank"):
        diversity([diagonal(1.0), diagonal(1.0, 2.0)])
    with pytest.raises(ValueError, match="operators are for plain LoRA"):
        cosines([{"m.lora_A.weight": torch.eye(2)}])
    with pytest.raises(ValueError, match="wanted finite factors"):
        norms([diagonal(1.0, math.nan)])
