// Scripted agent loops on both wires, on the port given. Ends with whoever started it.
// The latency stays above 0: without it a truncated stream breaks before its first byte.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: Number(process.argv[2]), latency: 1, chunkSize: 8 });
const weather = [
  { id: "call_koeln", name: "weather", arguments: { city: "Köln" } },
  { id: "call_rome", name: "weather", arguments: { city: "Rome" } },
];
const look = [{ id: "call_look", name: "list_files", arguments: { path: "." } }];

mock.on({ userMessage: "how is the weather", hasToolResult: false }, { reasoning: "Two cities, two calls.", toolCalls: weather });
mock.on({ userMessage: "how is the weather", hasToolResult: true }, { content: "Rain in Köln, sun in Rome." });
mock.on({ userMessage: "what is in this folder", hasToolResult: false }, { toolCalls: look });
mock.on({ userMessage: "what is in this folder", hasToolResult: true }, { content: "A file named hello.txt." });
mock.on({ userMessage: "an object", toolName: "reply_with_object" }, { toolCalls: [{ name: "reply_with_object", arguments: { n: 7 } }] });
mock.on({ userMessage: "an object" }, { content: '{"n": 7}' });
mock.on({ userMessage: "think aloud" }, { content: "Forty-two.", reasoning: "Six times nine, or so." });
mock.on({ userMessage: "too fast" }, { error: { message: "Slow down", type: "rate_limit_error" }, status: 429, retryAfter: 7 });
mock.on({ userMessage: "too many" }, { error: { message: "Overloaded", type: "overloaded_error" }, status: 529 });
mock.on({ userMessage: "break off" }, { content: "This sentence is longer than what will come of it." }, { truncateAfterChunks: 5 });

await mock.start();
const parent = process.ppid;
setInterval(() => process.ppid === parent || process.exit(0), 1000);
