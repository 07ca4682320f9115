"""The form of the answer, as each model can be held to it."""

from typing import Any

import pytest

from kelpie.core.models.response_formats import check_format, named, schema_of
from kelpie.llm.routing.response_forms import OBJECT_WORDS, SCHEMA_WORDS, formed
from tests.llm.fakes import asking

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
FULL = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    "form", [{"type": "text"}, {"type": "json_object"}, FULL, {"type": "json_schema", "json_schema": SCHEMA}]
)
def test_forms_that_can_be(form: dict[str, Any]):
    check_format(form)


@pytest.mark.parametrize(
    "form",
    [
        {}, {"type": "xml"}, {"type": None}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": "x"},
        {"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "json_schema", "json_schema": {"schema": {}}},
    ],
)  # fmt: skip
def test_forms_that_cannot_be(form: dict[str, Any]):
    with pytest.raises(ValueError, match=r"response format must be|needs the JSON schema"):
        check_format(form)


def test_a_schema_has_a_name_that_every_provider_takes():
    assert named(FULL) == FULL
    for alone in (
        {"type": "json_schema", "json_schema": SCHEMA},
        {**FULL, "json_schema": {"name": "a b", "schema": SCHEMA}},
    ):
        assert named(alone)["json_schema"] == {"name": "response", "schema": SCHEMA}
        assert schema_of(alone) == SCHEMA


def test_a_model_is_held_to_it_or_told_it():
    asked = asking(options={"response_format": FULL, "top_p": 0.5})
    able, unable = formed(asked, able=True), formed(asked, able=False)
    assert able.options == {"response_format": FULL, "top_p": 0.5} and able.system == asked.system
    assert unable.options == {"top_p": 0.5}
    assert SCHEMA_WORDS in unable.system and '{"type":"object","properties":{"n":{"type":"integer"}}}' in unable.system
    either = formed(asking(options={"response_format": {"type": "json_object"}}), able=True)
    assert either.system.endswith(OBJECT_WORDS)
    plain = asking(options={"response_format": {"type": "text"}})
    assert formed(plain, able=False) is plain and formed(asking(), able=False).options == {}
