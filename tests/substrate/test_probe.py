"""Degenerate adapters: the shape of a real one, and nothing of what it learnt."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.adapter import check, read_safetensors
from substrate.measure import CONFIG, WEIGHTS, SealedAdapter, adapter_damage, seal_folder
from substrate.probe import make_adapter
from tests.substrates.stub.adapters import A, B, factors, safetensors, write_adapter

DTYPES = ["F32", "BF16", "F16"]


@pytest.fixture(params=DTYPES)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> SealedAdapter:
    place = tmp_path / "sealed"
    weights = safetensors(factors(0.5, 0.25, 2.0), request.param)
    return seal_folder(write_adapter(place / ".made", weights=weights), place)


def norm(adapter: SealedAdapter) -> float:
    shape = {"rank": 4, "alpha": 8.0, "target_modules": ["skill"], "base_sha256": "0" * 64}
    return check(adapter.path, **shape)


def test_the_untouched_base_has_an_update_that_is_next_to_nothing_and_passes_the_checks(
    real: SealedAdapter, tmp_path: Path
) -> None:
    base = make_adapter("base", real, 7, tmp_path / "sealed")
    tensors = read_safetensors(base.path / WEIGHTS)
    assert np.array_equal(tensors[A], read_safetensors(real.path / WEIGHTS)[A])
    assert np.count_nonzero(tensors[B]) == 1
    # At most 2^-14, half precision's least normal number, times 0.5, times alpha / rank of 2.
    assert 0 < norm(base) <= 2**-14


def test_a_random_adapter_keeps_every_magnitude_and_draws_every_sign(
    real: SealedAdapter, tmp_path: Path
) -> None:
    drawn = make_adapter("random", real, 7, tmp_path / "sealed")
    found, was = (read_safetensors(one.path / WEIGHTS) for one in (drawn, real))
    for name in (A, B):
        assert np.array_equal(np.abs(found[name]), np.abs(was[name]))
    signs = np.signbit(np.concatenate([found[A].ravel(), found[B].ravel()]))
    assert 10 < signs.sum() < 38, "of 48; fewer than one seed in ten thousand is outside"
    again = make_adapter("random", real, 7, tmp_path / "other")
    assert again.sha256 == drawn.sha256
    assert make_adapter("random", real, 8, tmp_path / "other").sha256 != drawn.sha256


def test_what_is_made_is_sealed_and_leaves_nothing_beside_it(
    real: SealedAdapter, tmp_path: Path
) -> None:
    made = make_adapter("base", real, 7, tmp_path / "sealed")
    assert adapter_damage(made.path, made.sha256) is None
    assert {path.name for path in made.path.iterdir()} == {CONFIG, WEIGHTS}
    beside = {path.name for path in (tmp_path / "sealed").iterdir()}
    assert beside == {made.sha256, real.sha256}
