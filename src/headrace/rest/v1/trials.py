"""Tries a configuration or a chain of transforms: nothing is stored and nothing written."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import Connectors
from headrace.rest.v1.given import Whole
from headrace.rest.v1.workbench import Workbench


class PreviewRequest(BaseModel):
    """A connector's configuration, as it would be given to Kafka Connect."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, str] = Field(
        examples=[{"connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}]
    )
    rows: Whole = Field(default=20, ge=1, le=1000, description="How many records to read.")


class RecordShown(BaseModel):
    """A record at one place of the flow."""

    key: Any
    value: Any
    dropped: str | None = Field(default=None, description="The step that dropped it, here.")
    error: dict[str, Any] | None = Field(default=None, description="Why it was rejected, here.")


class StageShown(BaseModel):
    """The records at one place of the flow."""

    name: str = Field(description="`source`, or the name of the transform before.")
    fields: dict[str, str] = Field(description="The fields of the value, with their types.")
    records: list[RecordShown]


class Preview(BaseModel):
    """The first records at the source, and after each transform."""

    stages: list[StageShown]


class TrialRequest(BaseModel):
    """A chain, and records to send through it."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any] = Field(
        description="The keys of the chain: `transforms` and what belongs to it. All keys of "
        "a connector will do, and a list of sections as in YAML.",
        examples=[
            {
                "transforms": "wrap",
                "transforms.wrap.type": "HoistField$Value",
                "transforms.wrap.field": "line",
            }
        ],
    )
    records: list[Any] = Field(
        max_length=1000,
        description="Values, or objects with `key`, `value`, `headers` and more.",
        examples=[[{"value": {"id": 1}}]],
    )


class TrialFault(BaseModel):
    """Why a record was rejected."""

    class_: str = Field(alias="class")
    message: str | None


class TrialOutcome(BaseModel):
    """What became of a record: one of the three is there."""

    record: Any = None
    dropped: str | None = None
    error: TrialFault | None = None


class TrialStep(TrialOutcome):
    """What a step made of a record."""

    name: str


class TrialResult(TrialOutcome):
    """What the chain made of a record, step by step."""

    steps: list[TrialStep]


class Trial(BaseModel):
    """A result for each record, in their order."""

    results: list[TrialResult]


def trial_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["trials"], dependencies=[Depends(bench.slots)])

    @router.post("/preview", summary="Preview a configuration")
    def preview(asked: Annotated[PreviewRequest, Body()]) -> Preview:
        """Show the first records at the source and after each transform; nothing is kept."""
        stages = bench.preview(connectors.definition(asked.config), asked.rows)
        return Preview(
            stages=[
                StageShown(
                    name=stage.name,
                    fields=stage.fields,
                    records=[RecordShown.model_validate(each) for each in stage.records],
                )
                for stage in stages
            ]
        )

    @router.post(
        "/transforms/try",
        summary="Try transforms on records",
        response_model_exclude_unset=True,
    )
    def try_transforms(asked: Annotated[TrialRequest, Body()]) -> Trial:
        """Send records through a chain, and tell what each step made of each of them."""
        return Trial.model_validate(bench.try_transforms(asked.model_dump()))

    return router
