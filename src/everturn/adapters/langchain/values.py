"""Values inside LangChain's messages as JSON and back, or a refusal. Knows nothing of LangGraph."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage

from everturn import ChatMessage
from everturn.adapters._shared import values as python
from everturn.adapters._shared.values import TAG, RoundTripError
from everturn.adapters.langchain import messages
from everturn.model import JSON


class LangChainCodec(python.ValueCodec):
    """Encodes and decodes LangChain's messages and the values inside them, which may be messages again."""

    def _encode_other(self, value: Any) -> JSON:
        if isinstance(value, BaseMessage) and messages.is_known(value):
            return {TAG: "message", "of": self.encode_message(value, names_itself=False).to_dict()}
        if isinstance(value, BaseMessage) and (plain := messages.without_extra(value)) is not None:
            return {TAG: "extended", "of": [self._encode(plain), self._encode(value.model_extra)]}
        return super()._encode_other(value)

    def encode_message(self, message: BaseMessage, *, names_itself: bool = False) -> ChatMessage:
        """Return a message as an entry. `names_itself`: as in `messages.to_entry`."""
        return messages.to_entry(message, self._encode, names_itself=names_itself)

    def _decode_other(self, what: str, of: JSON) -> Any:
        match what:
            case "message":
                return self.decode_message(ChatMessage.from_dict(of))
            case "extended":
                return messages.with_extra(self._decode(of[0]), self._decode(of[1]))
            case "serde" | "snapshot" | "send" | "object" | "quote":
                raise RoundTripError(
                    "it holds what only LangGraph's adapter reads: to_langchain(store.get_history(...))"
                )
        return super()._decode_other(what, of)

    def decode_message(self, entry: ChatMessage) -> BaseMessage:
        """Return the message of an entry, by any framework. Raises RoundTripError if its class is missing."""
        if (plain_text_fields := messages.plain_text_fields(entry)) is not None:
            template, fields = plain_text_fields
            return template.build(fields)
        if (whole := messages.whole(entry)) is not None:
            message: BaseMessage = self._decode(whole)
            return message
        kind, fields = self._fields(entry, None)
        return messages.MessageTemplate.of(kind, fields).build(fields)

    def _fields(self, entry: ChatMessage, unnamed: str | None) -> tuple[type[BaseMessage], messages.Fields]:
        try:
            return messages.from_entry(entry, self._decode, unnamed=unnamed)
        except KeyError as exc:
            raise RoundTripError(f"LangChain's message class {exc} is not in the version installed here") from exc
