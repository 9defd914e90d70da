"""Hooks for Turnbuckle, in Python.

    from turnbuckle_hooks import deny, hook, run

    @hook("before_tool", tools=["shell"])
    async def no_force_push(turn, call):
        if "push --force" in call.arguments["command"]:
            return deny("force pushes are for people")

    run()
"""

from ._decisions import (
    Decision,
    accept,
    advise,
    answer,
    approve,
    ask,
    deny,
    erase,
    go_on,
    halt,
    modify,
    pause,
    prevent,
    refuse,
    regenerate,
    reject,
    rewrite,
    skip,
)
from ._hooks import POINTS, NextFailed, annotate, hook, progress
from ._server import run
from ._views import (
    Background,
    Call,
    Compaction,
    ConversationChange,
    Ended,
    Event,
    Logged,
    Message,
    Part,
    Reply,
    Request,
    Result,
    StopTurn,
    Turn,
)

__all__ = [
    "POINTS",
    "Background",
    "Call",
    "Compaction",
    "ConversationChange",
    "Decision",
    "Ended",
    "Event",
    "Logged",
    "Message",
    "NextFailed",
    "Part",
    "Reply",
    "Request",
    "Result",
    "StopTurn",
    "Turn",
    "accept",
    "advise",
    "annotate",
    "answer",
    "approve",
    "ask",
    "deny",
    "erase",
    "go_on",
    "halt",
    "hook",
    "modify",
    "pause",
    "prevent",
    "progress",
    "refuse",
    "regenerate",
    "reject",
    "rewrite",
    "run",
    "skip",
]
