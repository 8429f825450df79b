"""The built-in predicates."""

from headrace_plugins.predicates.condition import Condition
from headrace_plugins.predicates.has_header_key import HasHeaderKey
from headrace_plugins.predicates.record_is_tombstone import RecordIsTombstone
from headrace_plugins.predicates.topic_name_matches import TopicNameMatches

__all__ = ["Condition", "HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"]
