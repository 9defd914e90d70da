"""The hooks that the conformance kit asks for exact answers, and one at every other point.

    turnbuckle hooks conform -- python3 tests/conform.py
"""

import asyncio
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))

from turnbuckle_hooks import accept, deny, go_on, hook, progress, run  # noqa: E402


@hook("before_tool")
async def conform_deny(turn, call):
    return deny("conform: no")


@hook("before_tool")
async def conform_print(turn, call):
    print("conform: printed", flush=True)
    os.write(1, b"by its number\n")
    return deny("conform: no")


@hook("before_tool")
def conform_child(turn, call):
    subprocess.run(["cat"], check=True)
    return deny("conform: no")


@hook("before_tool")
def conform_uncalled(turn, call):
    return deny


@hook("before_agent")
def conform_fail(turn, prompt):
    raise ValueError("conform: broken")


@hook("on_stop")
async def conform_wait(turn):
    progress("conform: waiting")
    await asyncio.sleep(1000)


@hook("wrap_tool_call")
async def conform_twice(turn, call, next):
    return (await next()).text + ", " + (await next()).text


@hook("wrap_model_call")
async def conform_pass_on(turn, request, next):
    return await next()


@hook("stream")
class conform_hold:
    def __init__(self):
        self.held = ""

    def chunk(self, text):
        self.held += text

    async def finish(self):
        return self.held.upper()


@hook("on_stop")
def satisfied(turn):
    return accept() if turn.reply.text else None


for point in ("on_conversation", "before_model", "after_model", "after_tool", "background", "before_compaction", "on_ended", "on_logged", "on_event"):
    hook(point, name="quiet")(lambda *given: None)
hook("after_agent", name="shown")(lambda turn, reply, result: go_on(result={"said": reply.text}))

run()
