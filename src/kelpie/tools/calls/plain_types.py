"""The types an annotation may name without a class of its own, and their JSON schema."""

from typing import Any

Schema = dict[str, Any]

PLAIN: dict[str, Schema] = {
    "str": {"type": "string"},
    "Text": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "Decimal": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "NoneType": {"type": "null"},
    "Any": {},
    "object": {},
    "list": {"type": "array", "items": {"type": "string"}},  # as Letta describes a list of who knows what
    "List": {"type": "array", "items": {"type": "string"}},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "UUID": {"type": "string", "format": "uuid"},
    "EmailStr": {"type": "string", "format": "email"},
    "HttpUrl": {"type": "string", "format": "uri"},
    "AnyUrl": {"type": "string", "format": "uri"},
    "PositiveInt": {"type": "integer", "exclusiveMinimum": 0},
    "NonNegativeInt": {"type": "integer", "minimum": 0},
    "PositiveFloat": {"type": "number", "exclusiveMinimum": 0},
    "NonNegativeFloat": {"type": "number", "minimum": 0},
}
LISTS = frozenset({"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection"})
SETS = frozenset({"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"})
TUPLES = frozenset({"tuple", "Tuple"})
DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "DefaultDict", "defaultdict", "OrderedDict"})
JSON_TYPES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
NULL = PLAIN["None"]
WHOLE_NUMBER = r"^-?[0-9]+$"  # the keys of a dict[int, ...], which JSON writes as text
