"""The built-in transforms."""

from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.extract_field import ExtractField
from headrace_plugins.transforms.filter import Filter
from headrace_plugins.transforms.flatten import Flatten
from headrace_plugins.transforms.hoist_field import HoistField
from headrace_plugins.transforms.insert_field import InsertField
from headrace_plugins.transforms.mask_field import MaskField
from headrace_plugins.transforms.replace_field import ReplaceField
from headrace_plugins.transforms.value_to_key import ValueToKey

__all__ = [
    "Cast",
    "ExtractField",
    "Filter",
    "Flatten",
    "HoistField",
    "InsertField",
    "MaskField",
    "ReplaceField",
    "ValueToKey",
]
