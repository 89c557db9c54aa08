"""Spaces made of another one."""

from __future__ import annotations

from ..types import Array, Batch, Model, Space, State


class SpaceWrapper(Space):
    """A space with another one inside, to which it leaves what it does not change."""

    inner: Space

    @property
    def needs_all_rows(self) -> bool:
        return self.inner.needs_all_rows

    def zero(self, key: Array, data: Batch) -> State:
        return self.inner.zero(key, data)

    def evaluate(self, f: State, batch: Batch) -> Array:
        return self.inner.evaluate(f, batch)

    def sqnorm(self, x: Array) -> Array:
        return self.inner.sqnorm(x)

    def model(self, f: State, data: Batch | None = None) -> Model:
        return self.inner.model(f, data)

    def gram(self, batch: Batch) -> Array:
        return self.inner.gram(batch)

    def evals(self, coef: Array, batch: Batch) -> Array:
        return self.inner.evals(coef, batch)

    def support(self, f: State) -> Array:
        return self.inner.support(f)

    def layout(self, data: Batch) -> Batch:
        return self.inner.layout(data)
