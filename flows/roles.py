"""Roles: the models that a campaign talks to, and what each call is charged to.

Whoever may talk to a model is handed a `Converse` from here. One broker serves the whole process.
"""

import atexit
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.correspondence import Account, Amounts, Correspondence
from agents.journal import Exchange
from agents.line import Line, open_line, take_from_environment
from agents.messages import Converse
from agents.model import Model, is_model, read_model
from agents.redaction import redacted_logs
from agents.tries import Patience, Quiet
from flows.exchanges import record_exchange
from flows.house import House
from flows.plan import Plan, ServedPlan, SpendPlan
from flows.seed import derive_seed
from flows.settings import Settings
from policies.caps import SpendCaps
from policies.prices import Price, price_of, read_prices
from policies.purse import Purse
from policies.tables import Role

ROLES: tuple[Role, ...] = ("worker", "collector", "meta")
RAISED = "spend.raised"
PAUSED = "campaign.paused"  # at a cap of what it may spend


class BadRole(ValueError):
    """A role of the plan cannot be filled."""


@dataclass(frozen=True)
class Served:
    """The model of one role, where it is served, and what it costs."""

    role: Role
    model: Model
    price: Price | None
    plan: ServedPlan

    @property
    def patience(self) -> Patience:
        return Patience(idle=self.plan.idle_seconds, total=self.plan.total_seconds)


def served_roles(plan: Plan, settings: Settings) -> list[Served]:
    """The roles of the plan that talk to a model. Raises UnknownModel and BadPrices."""
    prices = read_prices(settings.prices)
    found = []
    for role in ROLES:
        spec = {"worker": plan.worker, "collector": plan.collector, "meta": plan.meta}[role]
        if not is_model(spec):
            continue
        where: ServedPlan = {
            "worker": plan.serving.worker,
            "collector": plan.serving.collector,
            "meta": plan.serving.meta,
        }[role]
        model = read_model(spec, where.base_url)
        found.append(Served(role, model, price_of(model.spec, prices), where))
    return found


def check_roles(plan: Plan, settings: Settings) -> list[Served]:
    """The same, each affordable. Raises BadRole for a model whose price nobody knows.

    A budget in dollars cannot hold without a price, and a campaign without any cap has none.
    """
    served = served_roles(plan, settings)
    for role in served:
        if plan.spend.dollars is None and not plan.spend.tokens:
            raise BadRole(
                f"wanted a cap on what {role.model.spec} may spend, found none; give `dollars` or "
                "`tokens`"
            )
        if role.price is None and plan.spend.caps().of("microdollars"):
            raise BadRole(
                f"wanted a price for {role.model.spec}, found none in policies/prices.toml or "
                f"{settings.prices}, and a cap in dollars; write one there, or cap tokens alone: "
                "`--tokens N`"
            )
    return served


def purse_of(house: House, campaign_id: str) -> Purse:
    """The campaign's purse, at its plan's caps as they have been raised since."""
    return Purse(house.ledger, campaign_id, lambda: caps_of(house, campaign_id))


def caps_of(house: House, campaign_id: str) -> SpendCaps:
    return spend_plan(house, campaign_id).caps()


def spend_plan(house: House, campaign_id: str) -> SpendPlan:
    """What the campaign may spend: as it was planned, and as a person raised it since."""
    plan = house.plan(campaign_id).spend
    for event in house.ledger.events(campaign_id, RAISED):
        raised = SpendPlan.model_validate_json(event.body)
        plan = plan.model_copy(update=raised.model_dump(exclude_unset=True))
    return plan


def raise_caps(house: House, campaign_id: str, raised: SpendPlan) -> None:
    """Write down higher caps. Raises BadRole for one that is lower, or that cannot hold."""
    given = raised.model_dump(mode="json", exclude_unset=True)
    before = spend_plan(house, campaign_id)
    after = before.model_copy(update=raised.model_dump(exclude_unset=True))
    for (unit, scope), cap in before.caps().amounts.items():
        if after.caps().amounts.get((unit, scope), cap) < cap:
            raise BadRole(
                f"wanted a higher cap on {unit} of a {scope}, found a lower one than the {cap} "
                "that stands; a cap is only raised"
            )
    plan = house.plan(campaign_id)
    check_roles(plan.model_copy(update={"spend": after}), house.settings)
    if given:
        house.ledger.note(campaign_id, RAISED, campaign_id, given)


def converse_for(house: House, campaign_id: str, role: Role, place: str) -> Converse:
    """What `role` talks to its model with. `place`: where in the campaign, such as `r1/s3/a1`.

    Each call is charged to the campaign's purse and journalled before its reply is seen. Raises
    BadRole where a cap in dollars could not hold, since nobody knows a price.
    """
    plan = house.plan(campaign_id)
    plan = plan.model_copy(update={"spend": spend_plan(house, campaign_id)})
    # Again, as at the start: the user's table of prices may have changed.
    served = {found.role: found for found in check_roles(plan, house.settings)}[role]
    purse, place = purse_of(house, campaign_id), f"{place}/{role}"
    numbers = itertools.count(purse.next_number(place))

    def reserve(amounts: Amounts) -> str:
        call = f"{place}/{next(numbers)}"
        purse.reserve(call, amounts)
        return call

    def record(call: str, exchange: Exchange) -> None:
        record_exchange(house, campaign_id, role, call, exchange)

    return Correspondence(
        line=take_keys(house.settings),
        model=served.model,
        price=served.price,
        account=Account(reserve=reserve, settle=purse.settle, record=record),
        patience=served.patience,
        seed=derive_seed(house.campaign(campaign_id).seed, 0, place),
        quiet=_quiet(served.model.origin),
    ).converse()


def hold_keys(plans: Sequence[Plan], settings: Settings) -> None:
    """Before anything is started that could inherit a key: the broker has them, or nobody.

    `plans` are all that this process will run: keys that none of them needs are gone for good.
    """
    if any(served_roles(plan, settings) for plan in plans):
        take_keys(settings)
    else:
        take_from_environment()


def take_keys(settings: Settings) -> Line:
    """The line to all providers. The first call starts the broker, which takes the keys.

    From then on no key is in our environment, and every log is redacted. Raises
    agents.line.NoLine.
    """
    return _line(settings.keys)


@cache
def _line(keys: Path) -> Line:
    stack = ExitStack()
    atexit.register(stack.close)
    line = stack.enter_context(open_line(keys if keys.is_file() else None, take_from_environment()))
    stack.enter_context(redacted_logs(line.marks))
    return line


@cache
def _quiet(origin: str) -> Quiet:
    """One for all workers of this process: what one is asked to wait, all wait."""
    return Quiet()
