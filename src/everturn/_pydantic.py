"""Schema of a ChatMessage for Pydantic and FastAPI. Imported only when Pydantic asks for it.

It checks shapes, for a web framework's error messages; core/validation.py decides which values may be stored.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema as schema

from everturn.model import ChatMessage


def message_schema(cls: type[ChatMessage]) -> schema.CoreSchema:
    """Make a schema that accepts a ChatMessage or a dict, and dumps a dict. Unknown fields are kept in `extra`."""
    text = schema.nullable_schema(schema.str_schema())
    parts = schema.list_schema(schema.any_schema())
    fields = schema.typed_dict_schema(
        {
            "role": schema.typed_dict_field(schema.str_schema(min_length=1)),
            "content": schema.typed_dict_field(
                schema.nullable_schema(schema.union_schema([schema.str_schema(), parts]))
            ),
            "name": schema.typed_dict_field(text, required=False),
            "tool_calls": schema.typed_dict_field(schema.nullable_schema(parts), required=False),
            "tool_call_id": schema.typed_dict_field(text, required=False),
            "id": schema.typed_dict_field(text, required=False),
            "metadata": schema.typed_dict_field(schema.dict_schema(schema.str_schema()), required=False),
        },
        extra_behavior="allow",
        cls_name=cls.__name__,
    )
    from_fields = schema.no_info_after_validator_function(cls.from_dict, fields)
    return schema.json_or_python_schema(
        json_schema=from_fields,
        python_schema=schema.union_schema([schema.is_instance_schema(cls), from_fields]),
        serialization=schema.plain_serializer_function_ser_schema(_dump, return_schema=fields),
    )


def _dump(message: ChatMessage) -> dict[str, Any]:
    return message.to_dict()
