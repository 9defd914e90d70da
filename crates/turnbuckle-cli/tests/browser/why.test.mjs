// The page that `why --html` writes: opened from its file, looked at light and dark, and hovered over.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before, test } from "node:test";
import { closeBrowser, faults, folderWith, open, overhang } from "./program.mjs";

// Where the pictures of the docs go; nothing is written without it.
const PICTURES = process.env.TURNBUCKLE_TEST_PICTURES;
const TURNS = 24;
const HOSTILE = "<img src=x onerror=alert(1)>";

let folder, page_of, calls;

// A conversation in a small context, with cuts, summaries and cache breaks, and the page of it.
before(() => {
  const usage = { input: 2600, output: 40, cache_read: 900 };
  const replies = Array.from({ length: TURNS }, (_, n) => [
    { usage, tool_calls: [{ id: `c${n}`, name: "read_file", arguments: { path: "notes.txt" } }] },
    { usage, text: `So far I have read ${n} notes. ${"They are about the garden. ".repeat(20)}` },
  ]).flat();
  const notes = { usage: { input: 900, output: 90 }, text: "## Goal\nRead the notes.\n## Facts\nThe heron stands at the pond." };
  const script = { replies, on_exhausted: "repeat", agents: { summary: [notes] } };
  folder = folderWith({
    "script.json": JSON.stringify(script),
    "notes.txt": "The heron stands at the pond and waits.\n".repeat(60),
    "turnbuckle.toml":
      '[agent]\nmodel = "script:script.json"\nsystem = "You keep a garden."\n[limits]\ncontext_tokens = 9000\ninjection_reserve = 500\n' +
      '[store]\naudit = true\n[[hooks]]\nuse = "instructions"\ntext = "Mind the marsh."\nfiles = []\n',
  });
  for (let turn = 0; turn < TURNS; turn += 1) folder.run("run", "-c", "m", `note ${turn} ${HOSTILE} ${"and what does it say? ".repeat(20)}`);
  folder.run("why", "m", "--html", "window.html");
  page_of = pathToFileURL(join(folder.project, "window.html")).href;
  calls = folder.run("why", "m", "--json").trim().split("\n").map(JSON.parse);
  assert.ok(calls.some((call) => call.cuts.length > 0) && calls.some((call) => call.summary) && calls.some((call) => call.cache_breaks.length > 0));
});
after(() => folder?.remove());
after(closeBrowser);

// The bars as the browser has laid them out.
const bars = (page) =>
  page.locator(".call").evaluateAll((all) =>
    all.map((call) => ({
      marks: call.querySelector(".marks").innerText.replace(/\s/g, ""),
      height: [...call.querySelectorAll(".stack i")].reduce((sum, part) => sum + part.getBoundingClientRect().height, 0),
      width: call.getBoundingClientRect().width,
      colours: [...call.querySelectorAll(".stack i")].map((part) => getComputedStyle(part).backgroundColor),
    })),
  );

for (const colorScheme of ["light", "dark"]) {
  test(`bars, marks and details are drawn from the file alone (${colorScheme})`, async (t) => {
    const page = await open(t, { colorScheme, viewport: { width: 1280, height: 900 } });
    await page.goto(page_of);
    const drawn = await bars(page);
    assert.equal(drawn.length, calls.length, "a bar for each call");
    const largest = calls.reduce((most, call, place) => (call.tokens > calls[most].tokens ? place : most), 0);
    const scale = drawn[largest].height / calls[largest].tokens;
    for (const [place, bar] of drawn.entries()) {
      const { tokens, segments, cuts, cache_breaks } = calls[place];
      // Each of at most eight parts is at least two pixels high.
      assert.ok(Math.abs(bar.height - tokens * scale) < 16 && bar.width >= 7, `bar ${place}: ${JSON.stringify(bar)}, ${tokens} tokens`);
      assert.equal(bar.colours.length, Object.values(segments).filter((size) => size > 0).length);
      assert.equal(bar.marks.includes("✂"), cuts.length > 0, `bar ${place}`);
      assert.equal(bar.marks.includes("⚡"), cache_breaks.length > 0, `bar ${place}`);
    }
    const versions = new Set(calls.flatMap((call) => call.summary?.version ?? []));
    assert.equal(drawn.filter((bar) => bar.marks.includes("≡")).length, versions.size, "a mark for each summary that became shown");
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const [red] = ground.match(/\d+/g).map(Number);
    assert.ok(colorScheme === "dark" ? red < 60 : red > 200, ground);
    assert.deepEqual(drawn.flatMap((bar) => bar.colours).filter((colour) => colour === "rgba(0, 0, 0, 0)"), [], "each part has a colour");
    assert.equal(await overhang(page), 0);
    assert.deepEqual(await faults(page), []);
    assert.deepEqual([page.complaints, page.asked], [[], [page_of]], "it loads nothing else");

    const place = calls.findIndex((call) => call.cuts.length > 0 && call.summary);
    const call = page.locator(".call").nth(place);
    const tip = call.locator(".tip");
    assert.equal(await tip.isVisible(), false);
    await call.locator(".stack").hover();
    assert.ok(await tip.isVisible(), "hovering shows the details");
    const told = await tip.innerText();
    for (const words of [`call ${calls[place].turn}.${calls[place].call}`, "summary (version ", "history (", "✂ ", "in all, estimated", "recorded by the audit", HOSTILE]) {
      assert.ok(told.includes(words), `${words} is not in: ${told}`);
    }
    const box = await tip.boundingBox();
    assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= 1280 && box.y + box.height <= 900, JSON.stringify(box));
    if (PICTURES && colorScheme === "light") {
      mkdirSync(PICTURES, { recursive: true });
      await page.screenshot({ path: join(PICTURES, "why.png") });
    }
    await page.mouse.move(2, 2);
    assert.equal(await tip.isVisible(), false, "and leaving hides them");
    await call.focus();
    assert.ok(await tip.isVisible(), "the Tab key shows them, too");
  });
}

test("on a phone the bars scroll and the page does not", async (t) => {
  const page = await open(t, { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true });
  await page.goto(page_of);
  assert.equal(await overhang(page), 0);
  assert.ok((await bars(page)).every((bar) => bar.width >= 7 && bar.height > 0));
});
