// Not run: `tsc --strict` reads it, so that what the types promise is noticed when it breaks.

import { deny, goOn, hook, modifyReply, run, skip, textOf } from "turnbuckle-hooks";

hook("before_tool", { tools: ["shell"] }, async function noForcePush(turn, call) {
  if (call.arguments.command.includes("push --force")) return deny(`${turn.agent} may not`);
});
hook("after_model", { name: "quote" }, (turn, reply) => modifyReply(textOf(reply.content)));
hook("wrap_model_call", { name: "fewer" }, async (turn, request, next) => await next({ tools: request.tools.slice(1) }));
hook("wrap_tool_call", { name: "same" }, async (turn, call, next) => await next());
hook("after_agent", { name: "shown" }, () => goOn({ result: { said: 1 } }));
hook("before_compaction", { name: "names" }, (turns) => (turns.turns > 1 ? goOn({ keep: [turns.transcript] }) : skip("few")));
hook("stream", { name: "shout" }, (stretch) => ({ chunk: (text) => stretch.kind + text.toUpperCase() }));
// @ts-expect-error there is nothing to deny when a turn is about to end
hook("on_stop", { name: "wrong" }, () => deny("x"));
// @ts-expect-error there is no such point
hook("on_sunday", { name: "wrong" }, () => {});
void run();
