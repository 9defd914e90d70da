"""The worker's side of the protocol: lines of JSON-RPC 2.0 on stdin and stdout."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from typing import Any

from ._hooks import POINTS, REGISTERED, RUNNING, WRAPS, NextFailed, Registered, Running
from ._views import Reply, Result

PROTOCOL = 1
# JSON-RPC codes of answers that are errors.
METHOD_NOT_FOUND, INVALID_PARAMS, HOOK_FAILED, NEXT_FAILED, CANCELLED = -32601, -32602, -32000, -32001, -32800


def run() -> None:
    """Serves the registered hooks until the runtime closes stdin. Does not return before.

    From here on ``print`` writes to stderr: stdout belongs to the protocol.
    """
    if not REGISTERED:
        raise RuntimeError("no hook is registered: use @hook(point) before run()")
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        asyncio.run(_Server(out).serve())
    except KeyboardInterrupt:
        pass


class _Server:
    def __init__(self, out: int) -> None:
        self._out = out
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # What `next` of a wrap waits for, by the id of its request.
        self._nexts: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_next = 0
        self._hooks: dict[tuple[str, str], Registered] = {(one.point, one.name): one for one in REGISTERED}

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        # The runtime's lines may be long: a context is one line.
        reader = asyncio.StreamReader(limit=1 << 30)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", closefd=False))
        while line := await reader.readline():
            self._take(json.loads(line))
        for task in list(self._tasks.values()):
            task.cancel()

    def _send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        # The pipe is written in whole lines by one thread, so lines never mix.
        while data:
            data = data[os.write(self._out, data) :]

    def _take(self, message: dict[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None:
            self._answered(message)
        elif method == "cancel":
            if task := self._tasks.get(params["call"]):
                task.cancel()
        elif number is None:
            pass  # A notification of a newer runtime.
        elif method == "initialize":
            self._initialize(number, params)
        elif method in POINTS:
            self._begin(number, method, params)
        else:
            self._fail(number, METHOD_NOT_FOUND, f"there is no method {method!r}")

    def _initialize(self, number: int, params: dict[str, Any]) -> None:
        if params.get("protocol") != PROTOCOL:
            self._fail(number, INVALID_PARAMS, f"this worker speaks protocol {PROTOCOL}")
            return
        hooks = [{"name": one.name, "point": one.point, "tools": list(one.tools)} for one in REGISTERED]
        self._send({"jsonrpc": "2.0", "id": number, "result": {"protocol": PROTOCOL, "hooks": hooks}})

    def _begin(self, number: int, point: str, params: dict[str, Any]) -> None:
        registered = self._hooks.get((point, params.get("hook", "")))
        if registered is None:
            self._fail(number, INVALID_PARAMS, f"there is no hook {params.get('hook')!r} at {point}")
            return
        task = asyncio.get_running_loop().create_task(self._call(number, registered, params))
        self._tasks[number] = task
        # Also for a task that was cancelled before it began: every call is answered.
        task.add_done_callback(lambda done: self._done(number, done))

    async def _call(self, number: int, registered: Registered, params: dict[str, Any]) -> None:
        RUNNING.set(Running(registered.point, number, self._send))
        arguments = POINTS[registered.point](params)
        if registered.point in WRAPS:
            answer = await self._wrap(number, registered, arguments)
        else:
            answer = registered.function(*arguments)
            if inspect.isawaitable(answer):
                answer = await answer
        if answer is None:
            answer = {"decision": "accept" if registered.point == "on_stop" else "continue"}
        self._send({"jsonrpc": "2.0", "id": number, "result": answer})

    async def _wrap(self, number: int, registered: Registered, arguments: tuple[Any, ...]) -> dict[str, Any]:
        last: Reply | Result | None = None

        async def next(**changes: Any) -> Reply | Result:
            nonlocal last
            self._last_next += 1
            request, future = self._last_next, asyncio.get_running_loop().create_future()
            self._nexts[request] = future
            try:
                changed = {"call": number, **{key: value for key, value in changes.items() if value is not None}}
                self._send({"jsonrpc": "2.0", "id": request, "method": "next", "params": changed})
                result = await future
            finally:
                del self._nexts[request]
            last = Reply(result["reply"]) if "reply" in result else Result(result["result"])
            return last

        answer = await registered.function(*arguments, next)
        if answer is None:
            # As if the wrap had only passed the call on.
            answer = last if last is not None else await next()
        if isinstance(answer, Result):
            return {"decision": "result", "ok": answer.ok, "content": answer.content}
        if isinstance(answer, Reply):
            if answer is last:
                return {"decision": "reply"}
            calls = [{"id": one["call"], "name": one["name"], "arguments": one["arguments"]} for one in answer.calls]
            return {"decision": "answer", "content": answer.content, "calls": calls}
        if isinstance(answer, str):
            answer = {"decision": "answer", "content": answer}
        if registered.point == "wrap_tool_call" and answer.get("decision") == "answer":
            return {**answer, "decision": "result"}
        answer = dict(answer)
        answer.pop("ok", None)
        return answer

    def _answered(self, message: dict[str, Any]) -> None:
        future = self._nexts.get(message.get("id", 0))
        if future is None or future.done():
            return  # The wrap did not wait for it.
        if "error" not in message:
            future.set_result(message["result"])
        elif message["error"]["code"] == NEXT_FAILED:
            future.set_exception(NextFailed(message["error"]["message"]))
        else:
            future.set_exception(RuntimeError(message["error"]["message"]))

    def _done(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        if task.cancelled():
            self._fail(number, CANCELLED, "cancelled")
        elif isinstance(error := task.exception(), NextFailed):
            self._fail(number, NEXT_FAILED, str(error))
        elif error is not None:
            traceback.print_exception(error, file=sys.stderr)
            self._fail(number, HOOK_FAILED, f"{type(error).__name__}: {error}")

    def _fail(self, number: int, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})
