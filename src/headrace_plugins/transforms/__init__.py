"""The built-in transforms."""

from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.filter import Filter
from headrace_plugins.transforms.insert_field import InsertField
from headrace_plugins.transforms.replace_field import ReplaceField

__all__ = ["Cast", "Filter", "InsertField", "ReplaceField"]
