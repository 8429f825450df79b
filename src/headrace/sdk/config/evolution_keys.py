"""The keys that say what a connector's target does when schemas change."""

from headrace.sdk.config.definition import ConfigDef, Importance, Width
from headrace.sdk.config.validators import Lambda, NullOr, ValidString
from headrace.sdk.config.values import ConfigType, invalid

EVOLUTION = "Schema Evolution"
_HANDLINGS = ("evolve", "lenient", "ignore", "reject")
_KINDS = {
    "add": "a field that the target does not have: evolve and lenient add it, as one that may "
    "be null; ignore leaves it out, with a notice.",
    "widen": "a type that takes more values than the target's, null among them: evolve and "
    "lenient widen the target's; ignore keeps the target's and rejects the records whose "
    "values do not fit it.",
    "narrow": "a type that takes fewer values than the target's: the target keeps its type, "
    "unless reject says so.",
    "retype": "another type, neither wider nor narrower: evolve gives it to the target, which "
    "may refuse; lenient puts the values into a field of their own, such as price__string; "
    "ignore keeps the target's type and rejects the records whose values do not fit it.",
    "rename": "a field that schema.evolution.renames declares: evolve goes on under the new "
    "name, ignore under the old one, lenient under both.",
    "drop": "a field of the target that is no longer there: evolve goes on without it; lenient "
    "keeps it, as null; ignore keeps it as it is, and stops if it must not be null and has no "
    "default.",
    "reorder": "fields in another order: evolve takes the new order, lenient and ignore keep "
    "the target's.",
}


def evolution_config(definition: ConfigDef | None = None) -> ConfigDef:
    """Give the keys, after those of `definition` if there is one."""
    keys = (definition or ConfigDef()).define(
        "schema.evolution",
        ConfigType.STRING,
        "evolve",
        validator=ValidString(*_HANDLINGS),
        importance=Importance.MEDIUM,
        doc="What the target does when the schema of the records changes: evolve follows, "
        "lenient takes old and new side by side, ignore stays as it is and takes what fits, "
        "reject stops the task with nothing of the batch written.",
        group=EVOLUTION,
        order=1,
        width=Width.SHORT,
        display_name="Schema evolution",
    )
    for order, (kind, doc) in enumerate(_KINDS.items(), start=2):
        keys = keys.define(
            f"schema.evolution.{kind}",
            ConfigType.STRING,
            None,
            validator=NullOr(ValidString(*_HANDLINGS)),
            importance=Importance.LOW,
            doc=f"The same for {doc} As schema.evolution if null.",
            group=EVOLUTION,
            order=order,
            width=Width.SHORT,
            display_name=f"On {kind}",
        )
    return keys.define(
        "schema.evolution.renames",
        ConfigType.LIST,
        "",
        validator=Lambda(_check_renames, "old:new pairs"),
        importance=Importance.LOW,
        doc="The fields that have been renamed, as pairs old:new; inside of a struct with the "
        "path to it, as in address.zip:address.postcode. Names alone cannot tell a rename.",
        group=EVOLUTION,
        order=2 + len(_KINDS),
        width=Width.LONG,
        display_name="Renamed fields",
    )


def _check_renames(name: str, value: object) -> None:
    for text in value if isinstance(value, list | tuple) else ():
        old, _, new = str(text).partition(":")
        within = old.strip().rpartition(".")[0] == new.strip().rpartition(".")[0]
        if not old.strip() or not new.strip() or not within:
            raise invalid(
                name,
                text,
                "Must be old:new, two names in one struct",
                fix="Write as in address.zip:address.postcode.",
            )
