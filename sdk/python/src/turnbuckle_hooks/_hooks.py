"""Registration of hooks, and what a hook can do while it runs."""

from __future__ import annotations

import contextvars
import dis
import inspect
import sys
from typing import Any, Callable, Sequence, TypeVar

from ._views import (
    Background,
    Call,
    Compaction,
    ConversationChange,
    Ended,
    Event,
    Logged,
    Reply,
    Request,
    Result,
    StopTurn,
    Turn,
    reply_of,
    text_of,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Arguments = Callable[[dict[str, Any]], tuple[Any, ...]]

# What each point gives its function, in order.
POINTS: dict[str, Arguments] = {
    "on_conversation": lambda p: (ConversationChange(p),),
    "before_agent": lambda p: (Turn(p["turn"]), text_of(p["prompt"])),
    "before_model": lambda p: (Turn(p["turn"]), Request(p["request"])),
    "wrap_model_call": lambda p: (Turn(p["turn"]), Request(p["request"])),
    "stream": lambda p: tuple(p["chunks"]),
    "after_model": lambda p: (Turn(p["turn"]), Reply(p["reply"])),
    "before_tool": lambda p: (Turn(p["turn"]), Call(p["call"])),
    "wrap_tool_call": lambda p: (Turn(p["turn"]), Call(p["call"])),
    "after_tool": lambda p: (Turn(p["turn"]), Call(p["call"]), Result(p["result"])),
    "on_stop": lambda p: (StopTurn(p),),
    "after_agent": lambda p: (Turn(p["turn"]), reply_of(p), p.get("result")),
    "background": lambda p: (Background(p),),
    "before_compaction": lambda p: (Compaction(p),),
    "on_ended": lambda p: (Ended(p),),
    "on_logged": lambda p: (Logged(p),),
    "on_event": lambda p: (Event(p["event"]),),
}
TOOL_POINTS = ("before_tool", "wrap_tool_call", "after_tool")
WRAPS = ("wrap_model_call", "wrap_tool_call")
# What Python 3.10 and 3.11 compile `await`, `async for` and `async with` to.
WAITING = ("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH")


class NextFailed(Exception):
    """What a wrap wraps has failed. A wrap that does not catch it passes the failure on as it was."""


def waits(function: Callable[..., Any]) -> bool:
    """Whether a function can wait. An ``async`` one that awaits nothing cannot, and needs no task."""
    if not inspect.iscoroutinefunction(function):
        return False
    # Newer versions begin a task at once, which costs no more than this saves.
    return sys.version_info >= (3, 12) or any(one.opname in WAITING for one in dis.get_instructions(function))


class Registered:
    """A function at a point."""

    __slots__ = ("arguments", "function", "is_async", "is_plain", "name", "nothing", "point", "tools")

    def __init__(self, name: str, point: str, tools: tuple[str, ...], function: Callable[..., Any]) -> None:
        self.name, self.point, self.tools, self.function = name, point, tools, function
        self.arguments = POINTS[point]
        # What `None` means, as it is sent: the most frequent answer by far.
        self.nothing = b'{"decision":"accept"}' if point == "on_stop" else b'{"decision":"continue"}'
        self.is_async = inspect.iscoroutinefunction(function)
        # Whether it answers without waiting for anything.
        self.is_plain = inspect.isfunction(function) and not waits(function) and point not in ("stream", *WRAPS)


class Running:
    """The call that is being answered."""

    __slots__ = ("annotations", "call", "is_open", "point", "send")

    def __init__(self, point: str, call: int, send: Callable[[dict[str, Any]], None]) -> None:
        self.point, self.call, self.send = point, call, send
        # Until it is answered: the runtime ends a worker that speaks of a call that is over.
        self.is_open = True
        self.annotations: dict[str, Any] = {}


REGISTERED: list[Registered] = []
RUNNING: contextvars.ContextVar[Running | None] = contextvars.ContextVar("turnbuckle_hooks_running", default=None)


def hook(point: str, *, tools: Sequence[str] = (), name: str | None = None) -> Callable[[Function], Function]:
    """Makes a function, plain or ``async``, a hook at ``point``.

    ``tools``: at tool points, globs of the tools it is for; empty for all. ``name``: the function's name by default.
    A wrap is also given ``next``, an ``async`` function that runs what it wraps; it must be ``async`` itself.
    At ``stream`` a function from text to text sees each chunk by itself; a class is made anew for each stretch of text,
    its ``chunk(text)`` returns what gets through, and its ``finish()``, if it has one, what was held back.
    Returning ``None`` lets the turn go on. A plain function blocks the other hooks of this worker while it runs.
    """
    if point not in POINTS:
        raise ValueError(f"there is no point {point!r}; there are {', '.join(POINTS)}")
    if isinstance(tools, str):
        raise TypeError("tools is a list of globs")
    if tools and point not in TOOL_POINTS:
        raise ValueError(f"{point} is not about tools")

    def register(function: Function) -> Function:
        if point in WRAPS and not inspect.iscoroutinefunction(function):
            raise TypeError(f"a hook at {point} must be an async function")
        given: Any = function
        if inspect.isclass(given) and (point != "stream" or not hasattr(given, "chunk")):
            raise TypeError("a class is a hook at stream, and has a method chunk(text)")
        called: str = name or function.__name__
        if any(other.name == called and other.point == point for other in REGISTERED):
            raise ValueError(f"there is a hook {called!r} at {point} already")
        REGISTERED.append(Registered(called, point, tuple(tools), function))
        return function

    return register


def progress(text: str) -> None:
    """Tells viewers what the hook is doing: "asking the scanner…". After the hook has answered it does nothing."""
    running = _running("progress")
    if not running.is_open:
        return
    running.send({"jsonrpc": "2.0", "method": "progress", "params": {"call": running.call, "text": str(text)}})


def annotate(key: str, value: Any) -> None:
    """Puts something beside the message that is made of the text (stream): citations, for instance."""
    _running("annotate").annotations[key] = value


def _running(what: str) -> Running:
    running = RUNNING.get()
    if running is None:
        raise RuntimeError(f"{what}() is for a hook that runs")
    return running


def current_point() -> str | None:
    """The point of the hook that runs."""
    running = RUNNING.get()
    return running.point if running else None
