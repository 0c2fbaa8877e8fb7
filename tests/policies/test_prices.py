"""Prices: the table is dated and whole, the user's own comes first, and none is never nothing."""

from pathlib import Path

import pytest

from policies.prices import TABLE, BadPrices, price_of, read_prices


def test_every_model_of_the_table_has_a_dated_price_for_every_kind_of_token() -> None:
    prices = read_prices()
    assert len(prices) > 10
    for model, price in prices.items():
        assert model.partition(":")[0] in ("anthropic", "openai")
        assert 0 < price.cache_read <= price.input <= price.cache_write < price.output
        assert price.source.startswith("prices.toml of 20")
    assert TABLE.is_file()


def test_a_cost_is_that_of_each_kind_of_token_rounded_up() -> None:
    price = read_prices()["anthropic:claude-opus-5"]  # $5 in, $25 out, $0.50 and $6.25 cached
    cost = price.cost(input=1000, output=200, cache_read=10_000, cache_write=400)
    # 1000 x 5 + 200 x 25 + 10,000 x 0.5 + 400 x 6.25 = 17,500 millionths
    assert cost == 17_500
    assert price.cost(input=0, output=0, cache_read=1) == 1  # half a millionth
    assert price.most(input=1000, output=200) == 11_250  # 1000 x 6.25 + 200 x 25


def test_the_users_own_table_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(
        'dated = 2026-11-01\n[models]\n"openai:mine" = { input = 0.1, output = 0 }\n'
        '"anthropic:claude-opus-5" = { input = 1, output = 2 }\n'
    )
    prices = read_prices(own)
    assert prices["openai:mine"].cost(input=3_000_000, output=9) == 300_000
    assert prices["openai:mine"].cache_write == prices["openai:mine"].input
    assert prices["anthropic:claude-opus-5"].source == "prices.toml of 2026-11-01"
    assert read_prices(tmp_path / "none.toml") == read_prices()


def test_a_dated_version_of_a_model_costs_what_the_model_costs() -> None:
    prices = read_prices()
    assert price_of("anthropic:claude-opus-4-5-20251101", prices) is not None
    assert price_of("anthropic:claude-opus-4-5-fast", prices) is None
    assert price_of("openai:unheard-of", prices) is None


@pytest.mark.parametrize(
    "entry",
    [
        "{ input = 1 }",
        '{ input = 1, output = "2" }',
        "{ input = 1, output = -2 }",
        "{ input = 1, output = nan }",
        "{ input = true, output = 2 }",
        "{ input = 1, output = 2, thinking = 3 }",
        "3",
        "{",
    ],
)
def test_a_table_that_says_no_price_is_refused(entry: str, tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(f'[models]\n"openai:mine" = {entry}\n')
    with pytest.raises(BadPrices, match=r"prices\.toml"):
        read_prices(own)
