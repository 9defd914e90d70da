"""What a hook may decide. Which decisions a point takes is in the protocol; others are refused by the runtime."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

from ._views import Message, Part

Content = Union[str, Sequence[Part]]
"""A string, or parts such as ``{"type": "text", "text": "…"}``."""


class Decision(dict[str, Any]):
    """The answer of a hook, as it is sent. Fields that are ``None`` are left out."""

    def __init__(self, decision: str, **fields: Any) -> None:
        super().__init__(decision=decision)
        self.update((key, value) for key, value in fields.items() if value is not None)


def halt(reason: str) -> Decision:
    """End the turn (before_agent, before_model, before_tool, after_tool)."""
    return Decision("halt", reason=reason)


def erase(reason: str) -> Decision:
    """End the turn and do not keep the message (before_agent)."""
    return Decision("erase", reason=reason)


def ask(reason: str) -> Decision:
    """A person decides (after_model, before_tool)."""
    return Decision("ask", reason=reason)


def reject(reason: str) -> Decision:
    """Take the reply back and end the turn (after_model)."""
    return Decision("reject", reason=reason)


def regenerate(reason: str) -> Decision:
    """Take the reply back and ask for another, with this feedback (after_model)."""
    return Decision("regenerate", reason=reason)


def deny(reason: str) -> Decision:
    """Do not run the call; the model reads the reason (before_tool)."""
    return Decision("deny", reason=reason)


def advise(reason: str) -> Decision:
    """The turn may end; the model of the next turn reads this (on_stop)."""
    return Decision("advise", reason=reason)


def refuse(reason: str) -> Decision:
    """The model is not done: it reads this and goes on (on_stop)."""
    return Decision("refuse", reason=reason)


def pause(reason: str) -> Decision:
    """A person decides whether the turn ends (on_stop)."""
    return Decision("pause", reason=reason)


def prevent(reason: str) -> Decision:
    """End the turn as halted, whatever other hooks say (on_stop)."""
    return Decision("prevent", reason=reason)


def skip(reason: str) -> Decision:
    """Make no summary of these turns (before_compaction)."""
    return Decision("skip", reason=reason)


def approve() -> Decision:
    """The calls of this reply need no further gate (after_model)."""
    return Decision("approve")


def accept() -> Decision:
    """The turn may end (on_stop)."""
    return Decision("accept")


def go_on(
    *,
    inject: Content | Sequence[Content] | None = None,
    prompt: Content | None = None,
    messages: Sequence[Message] | None = None,
    result: Any = None,
    notes: Content | Sequence[Content] | None = None,
    suggest: str | None = None,
    keep: str | Sequence[str] | None = None,
) -> Decision:
    """Go on, with these edits.

    ``inject``: before_agent, before_model, after_agent, on_conversation. ``prompt``: before_agent.
    ``messages``: before_model. ``result``: after_agent. ``notes`` and ``suggest``: background.
    ``keep``: before_compaction, texts that stay word for word beside the summary.
    """
    return Decision(
        "continue",
        inject=_several(inject),
        prompt=prompt,
        messages=messages,
        result=result,
        notes=_several(notes),
        suggest=suggest,
        keep=[keep] if isinstance(keep, str) else None if keep is None else list(keep),
    )


def _several(given: Content | Sequence[Content] | None) -> list[Any] | None:
    """A string or a list of parts is one content; a list of strings or of lists is several."""
    if given is None:
        return None
    if isinstance(given, str) or (given and isinstance(given[0], Mapping)):
        return [given]
    return list(given)


def modify(content: Content, *, ok: bool | None = None) -> Decision:
    """Use this text as the reply (after_model; a string), or this content as the result (after_tool)."""
    from ._hooks import current_point

    if current_point() == "after_model":
        return Decision("modify", text=content)
    return Decision("modify", content=content, ok=ok)


def rewrite(arguments: Mapping[str, Any]) -> Decision:
    """Run the call with these arguments (before_tool). They are validated again."""
    return Decision("rewrite", arguments=dict(arguments))


def answer(content: Content, *, ok: bool = True) -> Decision:
    """Do not run the call; this is its result (before_tool, wrap_tool_call), or the reply (wrap_model_call)."""
    return Decision("answer", content=content, ok=ok)
