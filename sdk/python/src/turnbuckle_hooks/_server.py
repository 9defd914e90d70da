"""The worker's side of the protocol: lines of JSON-RPC 2.0 on stdin and stdout."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from typing import Any, Coroutine

from ._hooks import POINTS, REGISTERED, RUNNING, WRAPS, NextFailed, Registered, Running
from ._views import Reply, Result

PROTOCOL = 1
# JSON-RPC codes of answers that are errors.
METHOD_NOT_FOUND, INVALID_PARAMS, HOOK_FAILED, NEXT_FAILED, CANCELLED = -32601, -32602, -32000, -32001, -32800
# More would be taken from the system and given back for each line.
READ_SIZE = 1 << 16
# A task that begins at once: most hooks never wait, and then the loop has nothing to do for them.
EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
decode = json.JSONDecoder().raw_decode


def run() -> None:
    """Serves the registered hooks until the runtime closes stdin. Does not return before.

    From here on ``print`` writes to stderr, and stdin is empty: both pipes belong to the protocol.
    """
    if not REGISTERED:
        raise RuntimeError("no hook is registered: use @hook(point) before run()")
    # The protocol's pipes get numbers that no child process has. One that read stdin would take lines of the protocol and wait
    # for the runtime to close it.
    given, out = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    try:
        # It cancels what still runs when stdin is closed.
        asyncio.run(_Server(given, out).serve())
    except KeyboardInterrupt:
        pass


def not_a_decision(name: str, answer: Any) -> TypeError:
    """A hook's mistake, which is the failure of its call and of nothing else."""
    if callable(answer):
        called = getattr(answer, "__name__", type(answer).__name__)
        return TypeError(f'{name} returned the function {called}: call it, as in `return deny("reason")`')
    return TypeError(f"{name} returned {type(answer).__name__}, which is no decision")


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that awaits nothing returns."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    raise RuntimeError("it waits, though nothing in it awaits")


class _Server:
    def __init__(self, given: int, out: int) -> None:
        self._given, self._out = given, out
        # Calls that wait for something. A task that has not begun yet is not in `_begun`.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: set[int] = set()
        # What `next` of a wrap waits for, by the id of its request.
        self._nexts: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_next = 0
        self._hooks: dict[tuple[str, str], Registered] = {(one.point, one.name): one for one in REGISTERED}
        # The transformers at work, by hook and stretch.
        self._streams: dict[tuple[str, int], Any] = {}
        # The beginning of a line whose end was not read yet.
        self._rest: list[bytes] = []

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        self._loop.add_reader(self._given, self._readable)
        try:
            await self._closed
        finally:
            self._loop.remove_reader(self._given)

    def _readable(self) -> None:
        try:
            data = os.read(self._given, READ_SIZE)
            if not data:
                self._closed.set_result(None)
                return
            *lines, rest = data.split(b"\n")
            for line in lines:
                if self._rest:
                    line = b"".join([*self._rest, line])
                    self._rest.clear()
                self._take(decode(line.decode())[0])
            if rest:
                self._rest.append(rest)
        except Exception as error:
            # What the runtime sends is not understood, or it does not read any more: nothing can be answered.
            if not self._closed.done():
                self._closed.set_exception(error)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(encode(message).encode(errors="replace"))

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        # Lines are written whole by one thread, so they never mix.
        written = os.write(self._out, data)
        while written < len(data):
            written += os.write(self._out, data[written:])

    def _take(self, message: dict[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None:
            self._answered(message)
        elif method in POINTS and number is not None:
            self._begin(number, method, params)
        elif method == "cancel":
            self._cancel(params["call"])
        elif method == "discard":
            for key in [key for key in self._streams if key[1] == params["stream"]]:
                del self._streams[key]
        elif number is None:
            pass  # A notification of a newer runtime.
        elif method == "initialize":
            self._initialize(number, params)
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
        if registered.is_plain:
            self._call_plain(number, registered, params)
            return
        task = asyncio.Task(self._serve_call(number, registered, params), loop=self._loop, **EAGER)
        if not task.done():
            self._tasks[number] = task

    def _call_plain(self, number: int, registered: Registered, params: dict[str, Any]) -> None:
        """A function that cannot wait needs no task."""
        running = Running(registered.point, number, self._send)
        token = RUNNING.set(running)
        try:
            answer = registered.function(*registered.arguments(params))
            if registered.is_async:
                answer = at_once(answer)
        except asyncio.CancelledError:
            running.is_open = False
            self._fail(number, CANCELLED, "cancelled")
        except (Exception, SystemExit) as error:
            self._failed(running, error)
        else:
            self._answer(running, registered, answer)
        finally:
            RUNNING.reset(token)

    async def _serve_call(self, number: int, registered: Registered, params: dict[str, Any]) -> None:
        """Answers the call whatever happens, and never raises."""
        running = Running(registered.point, number, self._send)
        RUNNING.set(running)
        self._begun.add(number)
        try:
            answer = await self._call(running, registered, params)
            self._answer(running, registered, answer)
        except asyncio.CancelledError:
            running.is_open = False
            self._fail(number, CANCELLED, "cancelled")
        except NextFailed as error:
            running.is_open = False
            self._fail(number, NEXT_FAILED, str(error))
        except (Exception, SystemExit) as error:
            # `sys.exit()` in a hook fails this call, and does not end the worker with the calls of others.
            self._failed(running, error)
        finally:
            self._begun.discard(number)
            self._tasks.pop(number, None)

    async def _call(self, running: Running, registered: Registered, params: dict[str, Any]) -> Any:
        if registered.point in WRAPS:
            return await self._wrap(running.call, registered, registered.arguments(params))
        if registered.point == "stream":
            text = await self._transform(registered, params)
            return {"decision": "pass", "text": text, "annotations": running.annotations}
        answer = registered.function(*registered.arguments(params))
        return await answer if inspect.isawaitable(answer) else answer

    def _answer(self, running: Running, registered: Registered, answer: Any) -> None:
        try:
            if answer is None:
                result = registered.nothing
            elif isinstance(answer, dict) and "decision" in answer:
                result = encode(answer).encode()
            else:
                raise not_a_decision(registered.name, answer)
        except (TypeError, ValueError) as error:
            # Not a decision, or something that is no JSON: the hook's mistake.
            self._failed(running, error)
            return
        running.is_open = False
        self._write(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (running.call, result))

    def _failed(self, running: Running, error: BaseException) -> None:
        running.is_open = False
        traceback.print_exception(error, file=sys.stderr)
        self._fail(running.call, HOOK_FAILED, f"{type(error).__name__}: {error}")

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is None:
            return
        if number not in self._begun:
            # It ends without a step of its own, and every call is answered.
            del self._tasks[number]
            self._fail(number, CANCELLED, "cancelled")
        task.cancel()

    async def _transform(self, registered: Registered, params: dict[str, Any]) -> str:
        chunk: Any = registered.function
        finish: Any = None
        if inspect.isclass(chunk):
            key = (registered.name, params["stream"])
            made: Any = self._streams.get(key)
            if made is None:
                made = self._streams[key] = chunk()
            chunk, finish = made.chunk, getattr(made, "finish", None)
            if params["last"]:
                del self._streams[key]
        passed: list[str] = []
        steps: list[tuple[Any, tuple[str, ...]]] = [(chunk, (text,)) for text in params["chunks"]]
        if params["last"] and finish is not None:
            steps.append((finish, ()))
        for step, arguments in steps:
            text = step(*arguments)
            if inspect.isawaitable(text):
                text = await text
            if text is not None:
                passed.append(text)
        return "".join(passed)

    async def _wrap(self, number: int, registered: Registered, arguments: tuple[Any, ...]) -> dict[str, Any]:
        last: Reply | Result | None = None

        async def next(**changes: Any) -> Reply | Result:
            nonlocal last
            self._last_next += 1
            request, future = self._last_next, self._loop.create_future()
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
        if not isinstance(answer, dict):
            raise not_a_decision(registered.name, answer)
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

    def _fail(self, number: int, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})
