"""An agent's budget in requests and responses. It is Kelpie's own: Letta has no such field."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.core.permissions.budgets import MICROS_PER_DOLLAR, Budget, Period

USD_MAX = 1_000_000_000


class BudgetBody(BaseModel):
    """The most that an agent may spend: dollars, tokens or both, in all or in each hour, day or month (UTC)."""

    model_config = ConfigDict(extra="forbid")

    usd: Annotated[float, Field(gt=0, le=USD_MAX)] | None = Field(None, description="Budget in US dollars.")
    tokens: Annotated[int, Field(gt=0, le=2**53)] | None = Field(
        None, description="Budget in tokens, prompts and replies together."
    )
    period: Period = Field(Period.total, description="`total`, `hour`, `day` or `month`.")

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.usd is None and self.tokens is None:
            raise ValueError("a budget needs usd or tokens; null removes the budget")
        return self

    def budget(self) -> Budget:
        micros = None if self.usd is None else max(1, round(self.usd * MICROS_PER_DOLLAR))
        return Budget(micros, self.tokens, self.period)


def budget_shape(budget: Budget | None) -> dict[str, Any] | None:
    if budget is None:
        return None
    usd = None if budget.micros is None else budget.micros / MICROS_PER_DOLLAR
    return {"usd": usd, "tokens": budget.tokens, "period": budget.period}
