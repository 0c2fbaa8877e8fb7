"""Operators on adapters: numbers worked out by hand, real PEFT models, and for each defect of a
published operator one test that shows it there and not in ours.
"""

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

from training import crossovers, mutations, operators
from training.factors import modules, norm, part_of, spectrum, truncated, update_of
from training.operators import CONTROLS, DEFAULT, PUBLISHED, Birth, child_of, draw_birth

OUTPUTS, INPUTS, RANK = 256, 192, 32

MUTATIONS = [
    *DEFAULT.mutations.values(),
    *PUBLISHED.mutations.values(),
    *CONTROLS.mutations.values(),
    mutations.neftune,
    mutations.published_neftune,
]
CROSSOVERS = [
    *DEFAULT.crossovers.values(),
    *PUBLISHED.crossovers.values(),
    *CONTROLS.crossovers.values(),
    crossovers.published_linear_0_5,
]
EVERY = [(m, 1) for m in MUTATIONS] + [(c, 2) for c in dict.fromkeys(CROSSOVERS)]
OURS = [(m, 1) for m in (*DEFAULT.mutations.values(), mutations.neftune)]
OURS += [(c, 2) for c in (*DEFAULT.crossovers.values(), crossovers.linear_0_5)]

Adapter = dict[str, Tensor]


def named(cases: list[Any]) -> Any:
    return pytest.mark.parametrize(
        ("operator", "parents"), cases, ids=[operator.__name__ for operator, _ in cases]
    )


def adapter(
    seed: int, *, layers: int = 2, rank: int = RANK, dtype: torch.dtype = torch.float32
) -> Adapter:
    """An adapter as training leaves it: A near its start, B with a falling spectrum."""
    dice = torch.Generator().manual_seed(seed)
    found: Adapter = {}
    for layer in range(layers):
        for name, outputs, inputs in (("up", OUTPUTS, INPUTS), ("down", INPUTS, OUTPUTS)):
            a = (torch.rand(rank, inputs, generator=dice) * 2 - 1) / inputs**0.5
            b = torch.randn(outputs, rank, generator=dice) / torch.arange(1, rank + 1)
            found[f"layers.{layer}.{name}.lora_A.weight"] = a.to(dtype)
            found[f"layers.{layer}.{name}.lora_B.weight"] = (0.1 * b).to(dtype)
    return found


def of(a: Tensor, b: Tensor) -> Adapter:
    return {"m.lora_A.weight": a, "m.lora_B.weight": b}


def update(state: Adapter) -> Tensor:
    """B A of every module, in one row."""
    return torch.cat([product(state, name).flatten() for name in modules(state)])


def product(state: Adapter, name: str = "m") -> Tensor:
    """B A of one module, (O, I)."""
    return state[f"{name}.lora_B.weight"].double() @ state[f"{name}.lora_A.weight"].double()


def growth(child: Adapter, parent: Adapter) -> float:
    return (update(child).norm() / update(parent).norm()).item()


def cosine(one: Adapter, other: Adapter) -> float:
    first, second = update(one), update(other)
    return (first @ second / (first.norm() * second.norm())).item()


def turned(state: Adapter, seed: int = 0, *, stretch: float = 1.0) -> Adapter:
    """The same B A in another gauge: (B R) (R^-1 A), with R orthogonal but for a stretch."""
    dice = torch.Generator().manual_seed(seed)
    found: Adapter = {}
    for name in modules(state):
        a, b = (state[f"{name}.lora_{factor}.weight"].double() for factor in "AB")
        r = torch.linalg.qr(torch.randn(len(a), len(a), generator=dice, dtype=torch.float64))[0]
        r = r * torch.linspace(0, 1, len(a)).double().mul(math.log(stretch)).exp()
        found[f"{name}.lora_A.weight"] = torch.linalg.solve(r, a).float()
        found[f"{name}.lora_B.weight"] = (b @ r).float()
    return found


# What holds for every operator.


@named(EVERY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_child_has_its_parents_shape_and_dtype_and_shares_nothing(
    operator: Any, parents: int, dtype: torch.dtype
) -> None:
    given = [adapter(seed, dtype=dtype) for seed in range(parents)]
    before = [{key: tensor.clone() for key, tensor in parent.items()} for parent in given]
    child = operator(*given, 5)
    assert list(child) == list(given[0])
    for key, tensor in child.items():
        assert (tensor.shape, tensor.dtype) == (given[0][key].shape, dtype)
        assert tensor.isfinite().all() and tensor.is_contiguous() and not tensor.requires_grad
        tensor.fill_(7)
    for parent, copy in zip(given, before, strict=True):
        assert all(torch.equal(parent[key], copy[key]) for key in copy)


@named(EVERY)
def test_a_seed_makes_one_child_and_another_seed_another(operator: Any, parents: int) -> None:
    given = [adapter(seed) for seed in range(parents)]
    first, again, other = (operator(*given, seed) for seed in (5, 5, 6))
    assert all(torch.equal(first[key], again[key]) for key in first)
    fixed = ("copy_parent", "linear_0_5", "published_linear_0_5")
    assert torch.equal(update(first), update(other)) == (operator.__name__ in fixed)


@named(EVERY)
def test_maths_is_float32_inside_whatever_the_dtype_outside(operator: Any, parents: int) -> None:
    given = [adapter(seed, dtype=torch.bfloat16) for seed in range(parents)]
    child = operator(*given, 5)
    wide = operator(*[{key: t.float() for key, t in parent.items()} for parent in given], 5)
    assert all(torch.equal(child[key], wide[key].bfloat16()) for key in child)


@named(OURS)
def test_ours_never_grows_an_update_nor_loses_a_slot(operator: Any, parents: int) -> None:
    given = [adapter(seed) for seed in range(parents)]
    for seed in range(5):
        child = operator(*given, seed)
        for name in modules(child):
            largest = max(product(parent, name).norm() for parent in given)
            assert product(child, name).norm() <= largest * (1 + 1e-5)
        assert not slots_without_gradient(child)


@named(OURS)
def test_ours_makes_a_living_child_of_fresh_adapters(operator: Any, parents: int) -> None:
    given = [fresh(adapter(seed)) for seed in range(parents)]
    child = operator(*given, 0)
    assert update(child).norm() == 0
    assert not slots_without_gradient(child)
    a = "layers.0.up.lora_A.weight"
    assert child[a].norm().item() == pytest.approx(given[0][a].norm().item(), rel=0.1)


@named([case for case in OURS if case[0] is not crossovers.modular])
def test_ours_changes_as_much_in_every_gauge(operator: Any, parents: int) -> None:
    given = [adapter(seed) for seed in range(parents)]
    for stretch in (1.0, 100.0):
        other = [turned(parent, stretch=stretch) for parent in given]
        found = [
            sum(cosine(operator(*adapters, seed), adapters[-1]) for seed in range(5)) / 5
            for adapters in (given, other)
        ]
        assert found[0] == pytest.approx(found[1], abs=0.02)


def fresh(state: Adapter) -> Adapter:
    """As PEFT starts: B is 0."""
    return {key: t * 0 if key.endswith("lora_B.weight") else t for key, t in state.items()}


def slots_without_gradient(state: Adapter) -> list[str]:
    """Slots of the rank whose row of A and column of B get no gradient, whatever the loss: with
    the gradient G of the loss by B A, those of B and A are G A^T and B^T G.
    """
    dead = []
    dice = torch.Generator().manual_seed(0)
    for name in modules(state):
        a, b = (state[f"{name}.lora_{factor}.weight"].float() for factor in "AB")
        g = torch.randn(len(b), a.shape[1], generator=dice)
        for slot, (of_b, of_a) in enumerate(zip((g @ a.T).T, b.T @ g, strict=True)):
            if of_b.norm() == 0 and of_a.norm() == 0:
                dead.append(f"{name} {slot}")
    return dead


# With PEFT.


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(12, 20)
        self.down = nn.Linear(20, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


def peft_model(**settings: Any) -> Any:
    torch.manual_seed(0)
    shape = LoraConfig(
        r=4, lora_alpha=8, target_modules=["up", "down"], init_lora_weights=False, **settings
    )
    return get_peft_model(Model(), shape)  # pyright: ignore[reportArgumentType]  # any module does


@named(EVERY)
def test_peft_loads_a_child_of_its_own_state_dicts(operator: Any, parents: int) -> None:
    model = peft_model()
    given = [get_peft_model_state_dict(model)]
    for _ in range(parents - 1):
        given.append({key: torch.randn_like(tensor) for key, tensor in given[0].items()})
    child = operator(*given, 1)
    set_peft_model_state_dict(model, {key: tensor.clone() for key, tensor in child.items()})
    x = torch.randn(3, 12)
    base = model.get_base_model()
    layers = {}
    for name in ("up", "down"):
        inner = getattr(base, name)
        prefix = f"base_model.model.{name}"
        layers[name] = inner.base_layer.weight + 2.0 * product(child, prefix).float()
    hidden = (x @ layers["up"].T + base.up.base_layer.bias).relu()
    wanted = hidden @ layers["down"].T + base.down.base_layer.bias
    torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-4)


def test_what_is_not_plain_lora_is_refused() -> None:
    dora = get_peft_model_state_dict(peft_model(use_dora=True))
    saved_whole = get_peft_model_state_dict(peft_model(modules_to_save=["down"]))
    half = {key: t for key, t in adapter(0).items() if not key.endswith("1.up.lora_B.weight")}
    for odd in (dora, saved_whole, half, {}):
        with pytest.raises(ValueError, match="operators are for plain LoRA"):
            mutations.gaussian(odd, 0)
    with pytest.raises(ValueError, match=r"of one rank, found \(3, 5\) and \(5, 4\) in m"):
        mutations.spectral(of(torch.ones(3, 5), torch.ones(5, 4)), 0)


def test_parents_that_differ_are_refused() -> None:
    for other in (adapter(1, rank=8), adapter(1, layers=1)):
        for crossover in (crossovers.dare, crossovers.modular, crossovers.published_extrapolation):
            with pytest.raises(ValueError, match="wanted parents of the same modules, rank"):
                crossover(adapter(0), other, 0)


def test_a_rank_of_one_has_no_subspaces_to_mix() -> None:
    for crossover in (crossovers.subspace, crossovers.published_subspace):
        with pytest.raises(ValueError, match="wanted a rank of 2 or more"):
            crossover(adapter(0, rank=1), adapter(1, rank=1), 0)


def test_factors_that_are_not_finite_are_refused() -> None:
    broken = adapter(0)
    broken["layers.1.up.lora_B.weight"][3, 3] = math.nan
    for operator in (mutations.spectral, mutations.gaussian):
        with pytest.raises(ValueError, match="wanted finite factors"):
            operator(broken, 0)
    with pytest.raises(ValueError, match="wanted finite factors"):
        crossovers.linear_0_5(adapter(1), broken, 0)


# The algebra.


def test_singular_values_are_those_of_the_product() -> None:
    a, b = adapter(0)["layers.0.up.lora_A.weight"], adapter(0)["layers.0.up.lora_B.weight"]
    found = spectrum(update_of((a, b)))
    u, values, vh = torch.linalg.svd(b.double() @ a.double())
    torch.testing.assert_close(found.values_K, values[:RANK])
    assert norm(update_of((a, b))) == pytest.approx(values.norm().item())
    left, right = b.double() @ found.left_R_K, found.right_K_R @ a.double()
    torch.testing.assert_close(left @ right, b.double() @ a.double())
    torch.testing.assert_close(right @ right.T, torch.eye(RANK).double())
    torch.testing.assert_close(
        left / found.values_K, u[:, :RANK] * (u[:, :RANK] * left).sum(0).sign()
    )
    assert len(vh) == INPUTS


def test_a_sum_of_updates_is_truncated_as_eckart_and_young_have_it() -> None:
    pairs = []
    for seed in range(2):
        state = adapter(seed)
        pairs.append((state["layers.0.up.lora_A.weight"], state["layers.0.up.lora_B.weight"]))
    both = update_of(*pairs)
    whole = sum(b.double() @ a.double() for a, b in pairs)
    u, values, vh = torch.linalg.svd(whole, full_matrices=False)
    dice = torch.Generator()
    a, b = truncated(both, torch.eye(2 * RANK).double(), rank=RANK, largest=1e9, dice=dice)
    nearest = u[:, :RANK] * values[:RANK] @ vh[:RANK]
    torch.testing.assert_close(b.double() @ a.double(), nearest, rtol=0, atol=1e-6)
    torch.testing.assert_close(norm(part_of(both, 1)), norm(update_of(pairs[1])))
    # As long as the parents' rows, and orthogonal.
    length = torch.cat([pair[0] for pair in pairs]).square().sum() / (2 * RANK)
    torch.testing.assert_close(a @ a.T, torch.eye(RANK) * length, rtol=0, atol=1e-5)


def test_siblings_that_hardly_differ_are_told_apart() -> None:
    """What is 1e-4 of the parents' size survives: the mean of siblings is their mean."""
    one = adapter(0)
    two = {key: t + 1e-4 * t.std() * torch.randn_like(t) for key, t in one.items()}
    child = crossovers.linear_0_5(one, two, 0)
    mean = (update(one) + update(two)) / 2
    apart = (update(one) - update(two)).norm()
    assert (update(child) - mean).norm() < 0.01 * apart


def test_crossovers_by_hand() -> None:
    # Updates diag(4, 0) and diag(0, 2), of rank 1.
    one = of(torch.tensor([[1.0, 0.0]]), torch.tensor([[4.0], [0.0]]))
    two = of(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0], [2.0]]))
    mean = product(crossovers.linear_0_5(one, two, 0))
    assert mean.flatten().tolist() == pytest.approx([2, 0, 0, 0])  # of diag(2, 1) the larger
    mixed = product(crossovers.published_linear_0_5(one, two, 0))
    assert mixed.flatten().tolist() == [1, 1, 0.5, 0.5]  # [2, 1]^T [1/2, 1/2]
    # -1/2 diag(4, 0) + 3/2 diag(0, 2) = diag(-2, 3), of which the larger.
    past = product(crossovers.extrapolation(one, two, 0, eta=(1.5, 1.5)))
    assert past.flatten().tolist() == pytest.approx([0, 0, 0, 3])
    # -2 diag(4, 0) + 3 diag(0, 2) = diag(-8, 6): the larger, and no larger than a parent.
    capped = product(crossovers.extrapolation(one, two, 0, eta=(3.0, 3.0)))
    assert capped.flatten().tolist() == pytest.approx([-4, 0, 0, 0])


def test_mutations_by_hand() -> None:
    parent = of(torch.eye(4), torch.diag(torch.tensor([4.0, 3, 2, 1])))
    masked = product(mutations.masking(parent, 0, share=0.3))  # ceil(1.2) = 2 of the 4
    lost = [n for n in range(4) if abs(masked[n, n]) < 1e-5]
    assert len(lost) == 2
    assert masked.diag().tolist() == pytest.approx([0 if n in lost else 4 - n for n in range(4)])
    # Without rotation only the sizes change; without noise nothing does.
    sized = product(mutations.spectral(parent, 0, rotation=0.0))
    assert (sized - sized.diag().diag()).abs().max() < 1e-5
    torch.testing.assert_close(
        product(mutations.spectral(parent, 0, epsilon=0, rotation=0)), product(parent)
    )


@pytest.mark.parametrize(("share", "count"), [(0.33, 2), (0.01, 1), (0.5, 4), (1.0, 8)])
@pytest.mark.parametrize("mutation", [mutations.layer_gaussian, mutations.published_layer_gaussian])
def test_the_layer_selective_mutation_changes_a_share_of_the_modules(
    mutation: Any, share: float, count: int
) -> None:
    parent = adapter(0, layers=4)
    child = mutation(parent, 0, share=share)
    changed = [n for n in modules(parent) if not torch.equal(product(child, n), product(parent, n))]
    assert len(changed) == count


@named([(mutations.gaussian, 1), (mutations.neftune, 1)])
def test_noise_has_the_size_that_is_asked_for(operator: Any, parents: int) -> None:
    parent = adapter(0)
    for epsilon in (0.05, 0.5):
        child = operator(parent, 9, epsilon=epsilon)
        # Noise across the update, then scaled back: the angle's tangent is epsilon.
        assert cosine(child, parent) == pytest.approx((1 + epsilon**2) ** -0.5, abs=0.01)


def test_modular_takes_each_module_whole_from_either_parent() -> None:
    one, two = adapter(0, layers=20), adapter(1, layers=20)
    child = crossovers.modular(one, two, 3)
    origins = Counter()
    for name in modules(child):
        for parent in (one, two):
            origins[id(parent)] += all(
                torch.equal(child[f"{name}.lora_{x}.weight"], parent[f"{name}.lora_{x}.weight"])
                for x in "AB"
            )
    assert sum(origins.values()) == 40 and min(origins.values()) > 10


def test_the_control_is_an_exact_copy() -> None:
    parent = adapter(0, dtype=torch.bfloat16)
    child = mutations.copy_parent(parent, 0)
    assert all(torch.equal(child[key], parent[key]) for key in parent)


# The published operators' defects, each beside ours without it.


def test_published_rotation_is_none_and_inflates() -> None:
    parent = adapter(0)
    published = [mutations.published_spectral(parent, seed) for seed in range(5)]
    ours = [mutations.spectral(parent, seed) for seed in range(5)]
    assert sum(growth(child, parent) for child in published) / 5 > 1.1
    assert max(growth(child, parent) for child in ours) <= 1 + 1e-5
    # Ours with sizes untouched has the parent's singular values: it only turns.
    child = mutations.spectral(parent, 0, epsilon=0.0)
    for name in modules(parent):
        values = torch.linalg.svdvals(product(child, name))[:RANK]
        torch.testing.assert_close(
            values, torch.linalg.svdvals(product(parent, name))[:RANK], rtol=1e-4, atol=1e-6
        )
    bent = mutations.published_spectral(parent, 0, epsilon=0.1)
    values = torch.linalg.svdvals(product(bent, "layers.0.up"))[:RANK]
    assert (values / torch.linalg.svdvals(product(parent, "layers.0.up"))[:RANK]).max() > 1.2


def test_ours_turns_as_far_at_every_rank() -> None:
    for rank in (8, 64):
        parent = adapter(0, rank=rank)
        found = [cosine(mutations.spectral(parent, seed), parent) for seed in range(5)]
        assert sum(found) / 5 == pytest.approx(0.985, abs=0.01)
    wide, narrow = (
        cosine(mutations.published_spectral(adapter(0, rank=rank), 0), adapter(0, rank=rank))
        for rank in (64, 8)
    )
    assert wide < narrow - 0.05


def test_published_masking_ends_slots_for_good_and_adds_up() -> None:
    published = ours = adapter(0, layers=1)
    for seed in range(3):
        published = mutations.published_masking(published, seed)
        ours = mutations.masking(ours, seed)
    # ceil(0.3 * 32) = 10 slots at a time in each of two modules.
    assert 2 * 10 < len(slots_without_gradient(published)) <= 2 * 30
    assert not slots_without_gradient(ours)
    # One step of gradient descent, and the update has its rank again.
    name = "layers.0.up"
    b, a = ours[f"{name}.lora_B.weight"], ours[f"{name}.lora_A.weight"]
    assert torch.linalg.matrix_rank(product(ours, name), rtol=1e-4) < RANK
    stepped = b + 0.01 * torch.randn(OUTPUTS, INPUTS) @ a.T
    assert torch.linalg.matrix_rank(stepped @ a, rtol=1e-4) == RANK


@named(
    [
        (mutations.published_spectral, 1),
        (mutations.published_masking, 1),
        (crossovers.published_subspace, 2),
    ]
)
def test_published_forms_kill_a_fresh_adapter(operator: Any, parents: int) -> None:
    child = operator(*[fresh(adapter(seed)) for seed in range(parents)], 0)
    assert len(slots_without_gradient(child)) == RANK * len(modules(child))
    # That ours does not is `test_ours_makes_a_living_child_of_fresh_adapters`.


def test_published_mixing_depends_on_the_gauge_of_the_parents() -> None:
    parent = adapter(0)
    other = turned(parent)
    assert cosine(parent, other) == pytest.approx(1)
    published = crossovers.published_linear_0_5(parent, other, 0)
    assert growth(published, parent) < 0.7 and cosine(published, parent) < 0.9
    ours = crossovers.linear_0_5(parent, other, 0)
    assert growth(ours, parent) == pytest.approx(1, abs=1e-4)
    assert cosine(ours, parent) == pytest.approx(1, abs=1e-6)
    # Past it: between two gauges of one update there is nothing to extrapolate.
    published = crossovers.published_extrapolation(parent, other, 0, eta=(1.4, 1.4))
    ours = crossovers.extrapolation(parent, other, 0, eta=(1.4, 1.4))
    assert growth(published, parent) > 1.2 and cosine(published, parent) < 0.97
    assert cosine(ours, parent) == pytest.approx(1, abs=1e-6)


def test_published_mixing_makes_updates_that_no_parent_has() -> None:
    one, two = adapter(0), adapter(1)
    mean = (update(one) + update(two)) / 2
    published = update(crossovers.published_linear_0_5(one, two, 0))
    ours = update(crossovers.linear_0_5(one, two, 0))
    assert (published - mean).norm() > 0.6 * mean.norm()  # the cross terms B1 A2 and B2 A1
    assert (ours - mean).norm() < 0.5 * mean.norm()  # what truncation to half the rank costs


def test_published_dare_destroys_even_identical_parents() -> None:
    parent = adapter(0)
    published = crossovers.published_dare(parent, parent, 0)
    assert cosine(published, parent) < 0.6 and growth(published, parent) > 1.5
    ours = crossovers.dare(parent, parent, 0)
    assert cosine(ours, parent) == pytest.approx(1, abs=1e-6)
    assert growth(ours, parent) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dropped", [0.2, 0.5])
def test_dare_is_the_mean_on_average(dropped: float) -> None:
    one, two = adapter(0, layers=1), adapter(1, layers=1)
    children = [update(crossovers.dare(one, two, seed, dropped=dropped)) for seed in range(60)]
    found, mean = torch.stack(children).mean(0), (update(one) + update(two)) / 2
    assert (found @ mean / (found.norm() * mean.norm())).item() > 0.9


def test_published_extrapolation_inflates() -> None:
    one, two = adapter(0), adapter(1)
    published = crossovers.published_extrapolation(one, two, 0, eta=(1.5, 1.5))
    ours = crossovers.extrapolation(one, two, 0, eta=(1.5, 1.5))
    assert growth(published, two) > 2
    assert growth(ours, two) <= 1.05  # capped by the larger parent
    assert cosine(ours, two) > cosine(published, two)


def test_published_subspace_takes_the_second_parents_least_part() -> None:
    # Updates on separate axes: 16 15 ... 1 on the first sixteen, then on the others.
    values = torch.arange(16, 0, -1).float()
    unit, blank = torch.eye(16), torch.zeros(16, 16)
    one = of(torch.cat([unit, blank], 1), torch.cat([values.diag(), blank]))
    two = of(torch.cat([blank, unit], 1), torch.cat([blank, values.diag()]))
    seen = set()
    for seed in range(8):
        published, ours = (
            product(crossover(one, two, seed)).diag()
            for crossover in (crossovers.published_subspace, crossovers.subspace)
        )
        cut = int((published[:16] > 0.5).sum())
        seen.add(cut)
        assert 1 <= cut <= 15
        assert published.tolist() == pytest.approx(
            [*values[:cut].tolist(), *[0] * 16, *values[cut:].tolist()], abs=1e-4
        )
        top = torch.tensor([*values[:cut], *[0] * (16 - cut), *values[: 16 - cut], *[0] * cut])
        scale = min(1.0, (values.norm() / top.norm()).item())  # capped
        assert ours.tolist() == pytest.approx((scale * top).tolist(), abs=1e-4)
    assert len(seen) > 3


def test_published_gaussian_grows_and_depends_on_the_gauge() -> None:
    parent = adapter(0)
    stretched = turned(parent, stretch=100.0)
    published = [mutations.published_gaussian(p, 0) for p in (parent, stretched)]
    ours = [mutations.gaussian(p, 0) for p in (parent, stretched)]
    assert growth(published[0], parent) > 1.01
    assert cosine(published[0], parent) - cosine(published[1], parent) > 0.05
    assert growth(ours[0], parent) <= 1 + 1e-5
    assert cosine(ours[0], parent) == pytest.approx(cosine(ours[1], parent), abs=0.01)


def test_published_noise_leaves_a_fresh_adapters_b_alone_and_ours_too() -> None:
    parent = fresh(adapter(0))
    for mutation in (mutations.published_gaussian, mutations.gaussian):
        child = mutation(parent, 0)
        assert update(child).norm() == 0
        a = "layers.0.up.lora_A.weight"
        assert not torch.equal(child[a], parent[a])


def test_published_neftune_is_larger_than_a_itself_at_the_scale_of_a_7b_model() -> None:
    dice = torch.Generator().manual_seed(0)
    bound = 3584**-0.5  # of A's entries, as PEFT draws them
    a = (torch.rand(32, 3584, generator=dice) * 2 - 1) * bound
    parent = of(a, torch.randn(64, 32, generator=dice))
    noise = mutations.published_neftune(parent, 9)["m.lora_A.weight"] - a
    assert (noise.abs().max() / bound).item() == pytest.approx(1.77, abs=0.01)
    assert cosine(mutations.published_neftune(parent, 9), parent) < 0.6
    assert cosine(mutations.neftune(parent, 9), parent) > 0.99


def test_published_splits_change_the_proportion_of_a_to_b_and_ours_keep_it() -> None:
    parent = adapter(0)
    a, b = "layers.0.up.lora_A.weight", "layers.0.up.lora_B.weight"
    for mutation in (mutations.published_spectral, mutations.published_masking):
        child = mutation(parent, 0)
        assert (child[a].norm() / child[b].norm()).item() == pytest.approx(1, abs=0.01)
    assert (parent[a].norm() / parent[b].norm()).item() > 1.5
    for mutation in (mutations.spectral, mutations.masking, mutations.gaussian):
        assert torch.equal(mutation(parent, 0)[a], parent[a])
    other = adapter(1)
    for crossover in (crossovers.linear_0_5, crossovers.dare, crossovers.extrapolation):
        child = crossover(parent, other, 0)
        assert child[a].norm().item() == pytest.approx(parent[a].norm().item(), rel=0.05)


# Drawing a child.


def test_a_birth_names_parents_from_the_pool_the_fitter_last() -> None:
    pool = [6, 2, 9, 4]  # from the least fit to the fittest
    dice = random.Random(0)
    births = [draw_birth(DEFAULT, pool, dice) for _ in range(2000)]
    pairs = [birth.parents for birth in births if len(birth.parents) == 2]
    assert len(pairs) / 2000 == pytest.approx(0.5, abs=0.05)
    assert all(pool.index(weaker) < pool.index(fitter) for weaker, fitter in pairs)
    drawn = Counter(birth.operator for birth in births)
    assert set(drawn) == {*DEFAULT.mutations, *DEFAULT.crossovers}
    assert max(drawn.values()) < 1.4 * min(drawn.values())
    assert all({b.operator} <= set(DEFAULT.crossovers) for b in births if len(b.parents) == 2)
    assert len({birth.seed for birth in births}) == 2000


def test_a_lone_parent_is_mutated_and_an_ablation_draws_what_it_has() -> None:
    dice = random.Random(0)
    assert all(len(draw_birth(DEFAULT, [3], dice).parents) == 1 for _ in range(20))
    crossing = operators.Operators({}, DEFAULT.crossovers)
    mutating = operators.Operators(DEFAULT.mutations, {})
    assert all(len(draw_birth(crossing, [3, 4], dice).parents) == 2 for _ in range(20))
    assert all(len(draw_birth(mutating, [3, 4], dice).parents) == 1 for _ in range(20))
    always = [draw_birth(DEFAULT, [3, 4], dice, crossover_share=1.0) for _ in range(20)]
    assert all(len(birth.parents) == 2 for birth in always)
    with pytest.raises(ValueError, match="0 mutations, 4 crossovers and a pool of 1"):
        draw_birth(crossing, [3], dice)


def test_a_child_can_be_made_again_from_its_birth() -> None:
    members = [adapter(seed) for seed in range(3)]
    for birth in (Birth("gaussian", (1,), 2**62 + 1), Birth("dare", (0, 2), 7)):
        first, again = (child_of(DEFAULT, birth, members) for _ in range(2))
        assert all(torch.equal(first[key], again[key]) for key in first)
    by_hand = crossovers.dare(members[0], members[2], 7)
    assert torch.equal(
        update(child_of(DEFAULT, Birth("dare", (0, 2), 7), members)), update(by_hand)
    )


def test_both_sets_have_the_same_names() -> None:
    assert DEFAULT.mutations.keys() == PUBLISHED.mutations.keys()
    assert DEFAULT.crossovers.keys() == PUBLISHED.crossovers.keys()
