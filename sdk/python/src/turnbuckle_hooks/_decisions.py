"""What a hook may decide. Which decisions a point takes is in the protocol; others are refused by the runtime."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

from ._views import Message, Part

Content = Union[str, Sequence[Part]]
"""A string, or parts such as ``{"type": "text", "text": "…"}``."""


class Decision(dict[str, Any]):
    """The answer of a hook, as it is sent."""


def _decision(name: str, **fields: Any) -> Decision:
    return Decision(decision=name, **{key: value for key, value in fields.items() if value is not None})


def go_on(
    *,
    inject: Content | Sequence[Content] | None = None,
    prompt: Content | None = None,
    messages: Sequence[Message] | None = None,
    result: Any = None,
    notes: Sequence[Content] | None = None,
    suggest: str | None = None,
) -> Decision:
    """Go on, with these edits.

    ``inject``: before_agent, before_model, after_agent, on_conversation. ``prompt``: before_agent.
    ``messages``: before_model. ``result``: after_agent. ``notes`` and ``suggest``: background.
    """
    injected: list[Content] | None = None
    if isinstance(inject, str):
        injected = [inject]
    elif inject is not None:
        # A list of parts is one injection; a list of strings or of lists is several.
        injected = [inject] if inject and isinstance(inject[0], Mapping) else list(inject)  # type: ignore[list-item]
    return _decision(
        "continue", inject=injected, prompt=prompt, messages=messages, result=result, notes=notes, suggest=suggest
    )


def halt(reason: str) -> Decision:
    """End the turn (before_agent, before_model, before_tool, after_tool)."""
    return _decision("halt", reason=reason)


def erase(reason: str) -> Decision:
    """End the turn and do not keep the message (before_agent)."""
    return _decision("erase", reason=reason)


def approve() -> Decision:
    """The calls of this reply need no further gate (after_model)."""
    return _decision("approve")


def ask(reason: str) -> Decision:
    """A person decides (after_model, before_tool)."""
    return _decision("ask", reason=reason)


def reject(reason: str) -> Decision:
    """Take the reply back and end the turn (after_model)."""
    return _decision("reject", reason=reason)


def regenerate(feedback: str) -> Decision:
    """Take the reply back and ask for another, with this feedback (after_model)."""
    return _decision("regenerate", reason=feedback)


def modify(content: Content, *, ok: bool | None = None) -> Decision:
    """Use this text as the reply (after_model; a string), or this content as the result (after_tool)."""
    from ._hooks import current_point

    if current_point() == "after_model":
        return _decision("modify", text=content)
    return _decision("modify", content=content, ok=ok)


def rewrite(arguments: Mapping[str, Any]) -> Decision:
    """Run the call with these arguments (before_tool). They are validated again."""
    return _decision("rewrite", arguments=dict(arguments))


def deny(reason: str) -> Decision:
    """Do not run the call; the model reads the reason (before_tool)."""
    return _decision("deny", reason=reason)


def answer(content: Content, *, ok: bool = True) -> Decision:
    """Do not run the call; this is its result (before_tool)."""
    return _decision("answer", content=content, ok=ok)


def accept() -> Decision:
    """The turn may end (on_stop)."""
    return _decision("accept")


def advise(text: str) -> Decision:
    """The turn may end; the model of the next turn reads this (on_stop)."""
    return _decision("advise", reason=text)


def refuse(feedback: str) -> Decision:
    """The model is not done: it reads this and goes on (on_stop)."""
    return _decision("refuse", reason=feedback)


def pause(reason: str) -> Decision:
    """A person decides whether the turn ends (on_stop)."""
    return _decision("pause", reason=reason)


def prevent(reason: str) -> Decision:
    """End the turn as halted, whatever other hooks say (on_stop)."""
    return _decision("prevent", reason=reason)
