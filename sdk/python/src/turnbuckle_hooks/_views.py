"""What a hook is given. Every view keeps what was sent in ``raw``: newer runtimes may send more."""

from __future__ import annotations

from typing import Any

Part = dict[str, Any]
"""A piece of content: ``{"type": "text", "text": "…"}``, or an image, a file, a thought."""
Message = dict[str, Any]
"""A message of a context: ``role`` (user, note, assistant, result), ``content``, and what belongs to the role."""


def text_of(content: list[Part]) -> str:
    """All text of the parts, one after the other."""
    return "".join(part["text"] for part in content if part.get("type") == "text")


class _View:
    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


class Turn(_View):
    """The turn that the hook runs in."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.conversation: str = raw["conversation"]
        self.id: str = raw["id"]
        self.agent: str = raw["agent"]
        self.parent_agent: str | None = raw.get("parent_agent")
        self.permission_mode: str = raw["permission_mode"]
        self.actor: dict[str, Any] = raw["actor"]
        self.user_message: list[Part] = raw["user_message"]
        self.stop_active: bool = raw["stop_active"]
        self.touched: list[str] = raw["touched"]

    @property
    def user_text(self) -> str:
        """The text of the message that opened the turn."""
        return text_of(self.user_message)


class Call(_View):
    """A call of a tool."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.id: str = raw["id"]
        self.name: str = raw["name"]
        self.arguments: dict[str, Any] = raw["arguments"]


class Result(_View):
    """What came of a call."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.ok: bool = raw["ok"]
        self.content: list[Part] = raw["content"]

    @property
    def text(self) -> str:
        """Its text."""
        return text_of(self.content)


class Reply(_View):
    """A complete reply of the model."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.content: list[Part] = raw["content"]
        self.calls: list[dict[str, Any]] = raw.get("calls", [])
        self.stop_reason: str = raw["stop_reason"]
        self.usage: dict[str, int] = raw.get("usage", {})

    @property
    def text(self) -> str:
        """Its text."""
        return text_of(self.content)


class Request(_View):
    """What the model is about to be sent."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.system: str = raw["system"]
        self.messages: list[Message] = raw["messages"]
        self.tools: list[str] = raw["tools"]


class StopTurn(Turn):
    """The turn at on_stop: with the model's last reply and the tools that ran."""

    def __init__(self, raw: dict[str, Any], reply: dict[str, Any] | None, tools: list[dict[str, Any]]) -> None:
        super().__init__(raw)
        self.reply: Reply | None = Reply(reply) if reply else None
        self.tools: list[dict[str, Any]] = tools


class Ended(_View):
    """A turn that is over."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.conversation: str = raw["conversation"]
        self.turn: str = raw["turn"]
        self.agent: str = raw["agent"]
        self.outcome: str = raw["outcome"]
        self.reason: str | None = raw.get("reason")
        self.usage: dict[str, int] = raw["usage"]
        self.model_calls: int = raw["model_calls"]
        self.ms: int = raw["ms"]


class Background(_View):
    """A completed turn, for work aside."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.conversation: str = raw["conversation"]
        self.turn: str = raw["turn"]
        self.agent: str = raw["agent"]
        self.outcome: str = raw["outcome"]
        self.messages: list[Message] = raw["messages"]
        self.reply: Reply | None = Reply(raw["reply"]) if raw.get("reply") else None


class ConversationChange(_View):
    """A conversation started, was revived or ended: ``what``."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.conversation: str = raw["conversation"]
        self.actor: dict[str, Any] = raw["actor"]
        self.what: str = raw["what"]


class Logged(_View):
    """A log event from the outbox; ``key`` tells a repetition."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.key: str = raw["key"]
        self.agent: str = raw["agent"]
        self.tries: int = raw["tries"]
        self.reminder: int | None = raw.get("reminder")
        self.event: dict[str, Any] = raw["event"]


class Event(_View):
    """A log or live event."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.type: str = raw["type"]
