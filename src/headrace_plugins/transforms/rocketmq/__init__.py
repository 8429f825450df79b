"""The transforms that RocketMQ Connect has and Kafka Connect has not."""

from headrace_plugins.transforms.rocketmq.change_case import ChangeCase
from headrace_plugins.transforms.rocketmq.extract_nested_field import ExtractNestedField
from headrace_plugins.transforms.rocketmq.pattern_filter import PatternFilter
from headrace_plugins.transforms.rocketmq.pattern_rename import PatternRename
from headrace_plugins.transforms.rocketmq.set_maximum_precision import SetMaximumPrecision
from headrace_plugins.transforms.rocketmq.set_null import SetNull

__all__ = [
    "ChangeCase",
    "ExtractNestedField",
    "PatternFilter",
    "PatternRename",
    "SetMaximumPrecision",
    "SetNull",
]
