"""Quick runs for all tests of the simulation: each run ends with a collection of garbage, which looks through all that
earlier tests have left (models, compiled statements, applications) unless that is frozen."""

import gc

import pytest


@pytest.fixture(scope="module")
def _collected() -> None:
    gc.collect()


@pytest.fixture(autouse=True)
def _frozen(_collected: None) -> None:
    gc.freeze()
