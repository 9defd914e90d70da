"""What a hook is given. A view has what was sent as attributes, and all of it in ``raw``: newer runtimes may send more."""

from __future__ import annotations

from typing import Any

Part = dict[str, Any]
"""A piece of content: ``{"type": "text", "text": "…"}``, or an image, a file, a thought."""
Message = dict[str, Any]
"""A message of a context: ``role`` (user, note, assistant, result), ``content``, and what belongs to the role."""


def text_of(content: list[Part]) -> str:
    """All text of the parts, one after the other."""
    return "".join(part["text"] for part in content if part.get("type") == "text")


class View:
    """The object of a message, with its fields as attributes."""

    raw: dict[str, Any]

    def __init__(self, raw: dict[str, Any]) -> None:
        self.__dict__.update(raw)
        self.raw = raw

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


class Turn(View):
    """The turn that the hook runs in."""

    conversation: str
    id: str
    agent: str
    parent_agent: str | None = None
    permission_mode: str
    actor: dict[str, Any]
    user_message: list[Part]
    stop_active: bool
    touched: list[str]
    budget: dict[str, Any]

    @property
    def user_text(self) -> str:
        """The text of the message that opened the turn."""
        return text_of(self.user_message)


class Call(View):
    """A call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


class _WithContent(View):
    content: list[Part]

    @property
    def text(self) -> str:
        """Its text."""
        return text_of(self.content)


class Result(_WithContent):
    """What came of a call."""

    ok: bool


class Reply(_WithContent):
    """A complete reply of the model."""

    calls: list[dict[str, Any]]
    stop_reason: str
    usage: dict[str, int]


class Request(View):
    """What the model is about to be sent; ``tools`` are names."""

    system: str
    messages: list[Message]
    tools: list[str]


class StopTurn(Turn):
    """The turn at on_stop: with the model's last reply and the tools that ran."""

    reply: Reply | None
    tools: list[dict[str, Any]]

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw["turn"])
        self.reply = reply_of(raw)
        self.tools = raw["tools"]


class _OverTurn(View):
    conversation: str
    turn: str
    agent: str


class Ended(_OverTurn):
    """A turn that is over."""

    outcome: str
    permission_mode: str
    reason: str | None = None
    usage: dict[str, int]
    model_calls: int
    ms: int


class Background(_OverTurn):
    """A completed turn, for work aside."""

    outcome: str
    actor: dict[str, Any]
    messages: list[Message]
    reply: Reply | None

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)
        self.reply = reply_of(raw)


class Compaction(_OverTurn):
    """The oldest turns, of which a summary is about to be made: ``transcript`` is what its model reads."""

    actor: dict[str, Any]
    turns: int
    transcript: str


class ConversationChange(View):
    """A conversation started, was revived or ended: ``what``."""

    conversation: str
    actor: dict[str, Any]
    what: str


class Logged(View):
    """A log event from the outbox; ``key`` tells a repetition."""

    key: str
    agent: str
    tries: int
    reminder: int | None = None
    event: dict[str, Any]


class Event(View):
    """A log or live event."""

    type: str


def reply_of(raw: dict[str, Any]) -> Reply | None:
    """The reply of a message, if it has one."""
    return Reply(raw["reply"]) if raw.get("reply") else None
