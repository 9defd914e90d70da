// The page's script. It puts elements that the server sends in the place of those with the same id, and sends forms without leaving the
// page. It knows nothing of conversations: whatever is shown was rendered by the server, and without this script the forms still work.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const csrf = () => document.querySelector('meta[name="csrf"]')?.content ?? "";

  // --- Changing the page -------------------------------------------------------------------------------------------------------

  // Attributes that belong to the reader and not to the server.
  const isReaders = (element, name) =>
    (name === "open" && element.localName === "details") ||
    (name === "value" && element.localName === "input" && element.type !== "hidden") ||
    // Without it the element would lose the focus that `focusOn` gave it.
    (name === "tabindex" && element === document.activeElement);

  // Which question a form answers.
  const asksAbout = (form) => ["call", "digest"].map((name) => form.querySelector(`input[name="${name}"]`)?.value ?? "").join(" ");

  // Makes `old` like `fresh` and changes no more than that, so that focus, selection, scroll positions, folds and what was typed stay.
  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
      return fresh;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return old;
    }
    // A form about another question is another form: what was typed into the old one must not be sent with the new one.
    if (old.localName === "form" && asksAbout(old) !== asksAbout(fresh)) {
      old.replaceWith(fresh);
      return fresh;
    }
    // What the script itself has said stays until it is read.
    if (old.id === "alert" && fresh.hidden) return old;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !isReaders(old, name)) old.removeAttribute(name);
    }
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value && !isReaders(old, name)) old.setAttribute(name, value);
    }
    // What a person typed is not the server's to change.
    if (old.localName === "textarea") {
      if (old.value === old.defaultValue) old.defaultValue = fresh.defaultValue;
      return old;
    }
    morphChildren(old, fresh);
    return old;
  }

  function morphChildren(old, fresh) {
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      // An element with an id is looked for among those that follow; what is passed over is gone.
      let known = next.id ? at : null;
      while (known && known.id !== next.id) known = known.nextSibling;
      if (known) {
        while (at && at !== known) at = dropped(at);
        at = morph(known, next).nextSibling;
      } else if (at && !at.id && !next.id && at.nodeName === next.nodeName) {
        at = morph(at, next).nextSibling;
      } else {
        old.insertBefore(next, at);
      }
    }
    while (at) at = dropped(at);
  }

  function dropped(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  };

  // Appends text inside an element: in the last element of its last element, as many steps down as said.
  function append(element, steps, text) {
    let place = element;
    for (let step = 0; step < steps; step++) place = place?.lastElementChild;
    if (!place) return false;
    if (place.lastChild?.nodeType === Node.TEXT_NODE) place.lastChild.appendData(text);
    else place.append(text);
    return true;
  }

  // Does something to the page after which the keyboard goes on where it was: if what had the focus is gone, from the nearest element
  // around it that is still there, or from the card that has taken the place of the one that it was in.
  function keepingFocus(change) {
    const active = document.activeElement;
    const around = [];
    for (let one = active?.parentElement; one; one = one.parentElement) {
      if (one.id) around.push(one.id);
      if (one.localName === "article" && one.nextElementSibling?.id) around.push(one.nextElementSibling.id);
    }
    const result = change();
    if (active && !active.isConnected) around.some((id) => focusOn(byId(id)));
    return result;
  }

  // Takes in what the server sent. False if it does not fit this page.
  const patch = (html) => keepingFocus(() => takeIn(html));

  function takeIn(html) {
    const follow = isAtEnd();
    let fits = true;
    for (const fresh of [...parsed(html).children]) {
      const old = byId(fresh.id);
      if (fresh.dataset.append) {
        fits = Boolean(old) && append(old, Number(fresh.dataset.append), fresh.textContent) && fits;
      } else if (old) {
        const isNews = fresh.hasAttribute("data-announce") && !old.hasAttribute("data-announce");
        morph(old, fresh);
        if (isNews) announce(old);
      } else if (fresh.dataset.in) {
        const parent = byId(fresh.dataset.in);
        if (!parent) fits = false;
        else {
          byId("empty")?.remove();
          parent.append(fresh);
          if (fresh.hasAttribute("data-announce")) announce(fresh);
        }
      }
      // A part that this viewer does not have is left out.
    }
    localise(document);
    const heading = byId("heading");
    if (heading) document.title = `${heading.textContent} · Turnbuckle`;
    if (follow) scrollTo({ top: document.body.scrollHeight });
    return fits;
  }

  // False if it is not there or not seen.
  function focusOn(element) {
    element?.setAttribute("tabindex", "-1");
    element?.focus({ preventScroll: true });
    return Boolean(element) && document.activeElement === element;
  }

  const isAtEnd = () => innerHeight + scrollY >= document.body.scrollHeight - 80;

  // Screen readers are told of what is complete, once.
  function announce(element) {
    // A reply of tool calls alone says nothing.
    const said = [...element.querySelectorAll(".said, .ask")].map((part) => part.textContent.trim());
    const title = element.querySelector("h2, h3")?.textContent.trim();
    const text = said.join(" ").slice(0, 2000);
    const place = byId("announce");
    if (!place || !text) return;
    const line = document.createElement("p");
    line.textContent = title ? `${title}: ${text}` : text;
    place.append(line);
    // Several in a row are all read; old ones are not found by going through the page.
    while (place.childElementCount > 5) place.firstElementChild.remove();
  }

  // --- Times -------------------------------------------------------------------------------------------------------------------

  function rough(seconds) {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
    return `${Math.round(seconds / 86400)} d`;
  }

  function localise(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const away = (at - Date.now()) / 1000;
      const text = time.hasAttribute("data-age")
        ? away > 0 ? `in ${rough(away)}` : `${rough(-away)} ago`
        : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      if (time.textContent !== text) time.textContent = text;
      const title = at.toLocaleString();
      if (time.title !== title) time.title = title;
    }
  }

  // --- The stream --------------------------------------------------------------------------------------------------------------

  let stream;

  // Browsers have six connections to a server, and a stream takes one for as long as it is open: only a page that is looked at has one.
  function disconnect() {
    stream?.close();
    stream = undefined;
  }

  function connect() {
    disconnect();
    const address = document.querySelector("[data-events]")?.dataset.events;
    if (!address || document.hidden) return;
    // It reconnects by itself, and says with Last-Event-ID what it has seen.
    stream = new EventSource(address);
    const own = stream;
    own.addEventListener("open", () => connection(""));
    own.addEventListener("patch", (event) => patch(event.data) || refresh());
    own.addEventListener("refresh", refresh);
    own.addEventListener("lagged", refresh);
    own.addEventListener("error", () => {
      connection("The connection is lost. Trying again…");
      // The server said no instead of breaking off: then the browser does not try again.
      if (own.readyState === EventSource.CLOSED && own === stream) setTimeout(refresh, 3000);
    });
  }

  // Asks the server, and gives up when it takes too long: all connections may be taken by other windows.
  async function ask(address, options) {
    const control = new AbortController();
    const timer = setTimeout(() => control.abort(), PATIENCE);
    try {
      const answer = await fetch(address, { ...options, signal: control.signal });
      return { answer, body: answer.type === "opaqueredirect" ? "" : await answer.text() };
    } finally {
      clearTimeout(timer);
    }
  }

  function connection(text) {
    const place = byId("connection");
    if (place && place.textContent !== text) place.textContent = text;
  }

  // How long an answer may take, in milliseconds.
  const PATIENCE = 20000;

  let refreshing = false;

  // How many texts are announced after a while in which the page was not in step.
  const MOST_NEWS = 5;
  // A page that is followed to its end, unlike a list.
  const stays = Boolean(document.querySelector("[data-events]"));

  // Fetches the page again and makes this one like it.
  async function refresh() {
    if (refreshing || document.hidden) return;
    refreshing = true;
    disconnect();
    try {
      // After a form that was sent without the script, the address of the page may be that of the form.
      const address = document.querySelector("[data-page]")?.dataset.page ?? location.href;
      const { answer, body } = await ask(address, { headers: { accept: "text/html" }, cache: "no-store" });
      // Logged out meanwhile: the login page says so.
      if (answer.redirected || answer.status === 401) return location.assign(answer.url);
      // It was deleted, or may not be read any more: trying again changes nothing.
      if ([403, 404, 410].includes(answer.status)) return connection("This conversation is not here any more.");
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(body, "text/html");
      const main = fresh.getElementById("main");
      if (main) {
        const known = new Set([...document.querySelectorAll("[data-announce]")].map((one) => one.id));
        const follow = stays && isAtEnd();
        keepingFocus(() => morph(byId("main"), document.adoptNode(main)));
        const news = [...document.querySelectorAll("[data-announce]")].filter((one) => !known.has(one.id));
        news.slice(-MOST_NEWS).forEach(announce);
        if (follow) scrollTo({ top: document.body.scrollHeight });
      }
      document.title = fresh.title;
      const token = fresh.querySelector('meta[name="csrf"]');
      if (token) document.querySelector('meta[name="csrf"]')?.setAttribute("content", token.content);
      const count = fresh.getElementById("waiting-count");
      if (count && byId("waiting-count")) morph(byId("waiting-count"), document.adoptNode(count));
      connection("");
      localise(document);
      connect();
    } catch {
      connection("The server does not answer. Trying again…");
      setTimeout(refresh, 3000);
    } finally {
      refreshing = false;
    }
  }

  // --- Forms -------------------------------------------------------------------------------------------------------------------

  function alertText(text) {
    const place = byId("alert");
    if (!place) return;
    place.textContent = text;
    place.hidden = !text;
    if (text) place.scrollIntoView({ block: "nearest" });
  }

  // Forms that are being sent: nothing is sent twice because somebody presses twice.
  const sending = new WeakSet();
  // The key under which a form's message is sent. It stays until the message was taken, so that a second try is not a second message.
  const keys = new WeakMap();

  function keyOf(form) {
    if (!keys.has(form)) {
      const random = crypto.getRandomValues(new Uint8Array(16));
      keys.set(form, [...random].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
    }
    return keys.get(form);
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    // Searching, logging in and out, and what leads to another page go the ordinary way.
    if (form.method !== "post" || !form.action.includes("/page/c/") || form.action.endsWith("/delete")) return;
    event.preventDefault();
    if (sending.has(form)) return;
    sending.add(form);
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    if (form.action.endsWith("/messages")) fields.set("key", keyOf(form));
    // A button that were disabled would lose the focus.
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => button.setAttribute("aria-disabled", "true"));
    const field = form.id === "composer" ? byId("content") : null;
    const text = field?.value;
    // What is typed from now on is the next message.
    if (field) field.value = "";
    const giveBack = () => {
      if (field) field.value = field.value ? `${text}\n\n${field.value}` : text;
    };
    alertText("");
    try {
      const { answer, body } = await ask(form.action, {
        method: "POST",
        body: fields,
        headers: { "x-csrf-token": csrf(), accept: "application/json" },
        redirect: "manual",
      });
      if (answer.ok || answer.type === "opaqueredirect") {
        keys.delete(form);
        // A page without a stream is not told what changed.
        if (!stream || form.action.endsWith("/title")) refresh();
      } else if (answer.status === 401) {
        location.assign("/login");
      } else {
        giveBack();
        alertText(message(body) ?? `The server answered ${answer.status}.`);
        // Someone else was faster, or what was asked has changed.
        if (answer.status === 409) refresh();
      }
    } catch {
      giveBack();
      const again = field ? "Send it again: it is not taken twice." : "Look whether it was taken before you send it again.";
      alertText(`The server did not answer. ${again}`);
    } finally {
      sending.delete(form);
      buttons.forEach((button) => button.removeAttribute("aria-disabled"));
      field?.focus();
    }
  });

  function message(body) {
    try {
      return JSON.parse(body).error.message;
    } catch {
      return null;
    }
  }

  document.addEventListener("keydown", (event) => {
    const typed = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && typed.dataset?.keys === "send") {
      event.preventDefault();
      if (typed.value.trim()) typed.form.requestSubmit();
    }
    // From anywhere in the page, `/` goes to where one types.
    const isTyping = typed.closest?.("input, textarea, select");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const place = byId("content") ?? byId("q");
      if (place) {
        event.preventDefault();
        place.focus();
      }
    }
  });

  // What a link within the page leads to is unfolded.
  function showTarget() {
    const target = location.hash && byId(location.hash.slice(1));
    if (!target) return;
    if (target.localName === "details") target.open = true;
    (target.querySelector(":scope > summary") ?? target).focus();
  }

  // --- Beginning ---------------------------------------------------------------------------------------------------------------

  localise(document);
  setInterval(() => localise(document), 30000);
  connect();
  if (document.querySelector("[data-events]") && !location.hash) scrollTo({ top: document.body.scrollHeight });
  const often = () => Number(document.querySelector("[data-refresh]")?.dataset.refresh ?? 0);
  let seconds = 0;
  setInterval(() => {
    if (!often() || ++seconds < often()) return;
    seconds = 0;
    // Not while somebody types.
    if (!document.activeElement?.closest("input, textarea, select")) refresh();
  }, 1000);
  addEventListener("pageshow", (event) => event.persisted && refresh());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else if (stays || often()) refresh();
  });
  showTarget();
  addEventListener("hashchange", showTarget);
})();
