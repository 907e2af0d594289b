"use strict";
// What scripts add to pages that work without them: keys, the theme, copying, commands that follow their forms,
// search as you type, and news. What comes from the server is a part of a page that the server has escaped;
// nothing else becomes markup.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const remembered = (name) => { try { return localStorage.getItem(name) ?? ""; } catch { return ""; } };
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not kept */ } };

  // The theme is the system's, or what was chosen here: by when the style of the dark one counts.
  const SYSTEM = "(prefers-color-scheme: dark)", WHEN = { light: "not all", dark: "all" };
  const darkness = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).find((rule) => rule.media?.mediaText === SYSTEM);
  function paint(theme) {
    darkness.media.mediaText = WHEN[theme] ?? SYSTEM;
    document.documentElement.style.colorScheme = theme || "light dark";
    for (const one of $$("[data-theme]")) one.setAttribute("aria-pressed", one.dataset.theme === theme);
  }
  paint(remembered("theme"));

  async function copy(button) {
    const code = $("code", button.parentElement);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.firstChild.data = "Copied";
      setTimeout(() => { button.firstChild.data = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
    }
  }

  // The command below a form does what the form would do as it is filled in.
  const quote = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
  function tell(form) {
    const words = [form.dataset.command], bare = [];
    for (const field of form.elements) {
      const { option, usual } = field.dataset, value = field.value.trim(), ticks = field.type === "checkbox";
      if (option === "") bare.push(quote(value));
      else if (ticks ? option && field.checked : option && value && value !== usual) words.push(option, ...(ticks ? [] : [quote(value)]));
    }
    if (bare.some((word) => word.startsWith("-"))) bare.unshift("--");
    $(".follows code", form).textContent = [...words, ...bare].join(" ");
  }

  function prepare(root) {
    for (const button of $$("button.copy[hidden]", root)) {
      button.hidden = false;
      button.addEventListener("click", () => copy(button));
    }
    for (const told of $$("form[data-command] .follows[hidden]", root)) {
      const form = told.closest("form");
      told.hidden = false;
      form.addEventListener("input", () => tell(form));
      tell(form);
    }
    for (const all of $$("input.all[hidden]", root)) all.hidden = false;
    for (const list of $$("table.rows", root)) rove(list, $("tbody tr", list));
    count();
  }

  // Tab goes into a long list once: at the row where one was last. Keys and arrows go from row to row.
  function rove(list, row) {
    for (const one of $$("tbody :is(a, input)", list)) one.tabIndex = row?.contains(one) ? 0 : -1;
  }

  function count() {
    const told = $("#ticked"), ticked = $$("input[name=id]:checked").length;
    if (told) told.textContent = ticked ? `${ticked} chosen` : told.dataset.all;
  }

  function walk(by) {
    const rows = $$("#main tbody tr").filter((row) => $("th a", row));
    const at = rows.indexOf(document.activeElement.closest("tr"));
    $("th a", rows[Math.min(rows.length - 1, Math.max(0, at + by))] ?? document)?.focus();
  }

  const KEYS = {
    j: () => walk(1), k: () => walk(-1), ArrowDown: () => walk(1), ArrowUp: () => walk(-1),
    x: () => $("input[name=id]", document.activeElement.closest("tr") ?? document.createElement("p"))?.click(),
    a: () => press("a"), p: () => press("p"),
    "/": () => $("[type=search], [role=search] :is(input, select)")?.focus(),
    "?": () => $("dialog.keys").showModal(),
  };
  const PLACES = { n: "/", f: "/failures", l: "/letters", i: "/incidents", p: "/plans" };
  let going = 0;

  function onKey(event) {
    const { key, target } = event, arrow = key.startsWith("Arrow");
    if (key === "Escape") return closePanel();
    const writes = target.closest?.("input:not([type=checkbox]), select, textarea, dialog[open]");
    if (writes || event.ctrlKey || event.metaKey || event.altKey || (remembered("keys") === "off" && !arrow)) return;
    const goes = Date.now() - going < 1000 && PLACES[key];
    going = key === "g" ? Date.now() : 0;
    if (goes) location.href = goes;
    else if (!(key in KEYS) || (arrow && !target.closest?.("table.rows"))) return;
    else KEYS[key]();
    event.preventDefault();
  }

  // What has opened over the page: a form, the filters, what is below one's name.
  function closePanel() {
    const panel = document.activeElement.closest(":is(.opens, .who) [open], :is(.panel, .up)[open]");
    if (!panel) return;
    panel.open = false;
    $("summary", panel).focus();
  }

  function press(key) {
    const found = $(`[data-key="${key}"]:not(:disabled)`);
    found?.focus();
    found?.click();
  }

  // Who has done something stands where they were: the same form, at the same place.
  const PLACE = "focus";
  function keepPlace(event) {
    try { sessionStorage.setItem(PLACE, JSON.stringify([location.pathname, event.target.getAttribute("action"), scrollY])); } catch { /* not kept */ }
  }

  function findPlace() {
    let place, action, top;
    try {
      [place, action, top] = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");
      sessionStorage.removeItem(PLACE);
    } catch { return; }
    if (place !== location.pathname) return;
    scrollTo({ top, behavior: "instant" });
    standAt(action);
  }

  function standAt(action) {
    const form = $$("#main form").find((one) => !one.closest(".news") && one.getAttribute("action") === action);
    const back = form && ($("summary", form.closest(".opens details") ?? form) ?? $("button:not(:disabled, .copy)", form));
    (back ?? $("#main")).focus({ preventScroll: true });
  }

  // What may be done changes when something begins or ends, and what came back is known.
  function renewRest() {
    if (!document.getElementById("rest")) return;
    const action = document.activeElement.closest("#rest form")?.getAttribute("action");
    htmx.ajax("GET", location.pathname, { target: "#rest", select: "#rest", swap: "outerHTML" }).then(() => {
      prepare(document);
      if (action && document.activeElement === document.body) standAt(action);
    });
  }

  const PATIENCE = 5000;
  function follow(place) {
    const said = document.createElement("p");
    said.className = "refusal";
    said.setAttribute("role", "alert");
    let news, late, heard = new Date();
    // What stands there is of then: whether anything goes on nobody knows.
    function tellSilence() {
      for (const one of place.querySelectorAll("[data-going]")) one.hidden = true;
      said.textContent = `No news since ${heard.toISOString().slice(11, 19)} UTC: the server does not answer, or knows you no more. Load the page again.`;
      place.before(said);
    }
    function hear() {
      heard = new Date();
      clearTimeout(late);
      late = undefined;
      said.remove();
    }
    function listen() {
      news = new EventSource(place.dataset.live);
      news.addEventListener("open", hear);
      news.addEventListener("news", (event) => {
        hear();
        htmx.swap(place, event.data, { swapStyle: "innerHTML" });
      });
      news.addEventListener("turn", renewRest);
      news.addEventListener("over", () => { news.close(); renewRest(); });
      news.addEventListener("error", () => {
        late ??= setTimeout(tellSilence, PATIENCE);
        if (news.readyState === EventSource.CLOSED) setTimeout(listen, PATIENCE);
      });
    }
    listen();
    addEventListener("pagehide", () => news.close());
  }

  // Search as you type: the list of the same address, in the place of the list; of a text, what is found at
  // once before that. Until the answer to what
  // stands in the fields is there, the list is of something else, and nothing may be done with it.
  let waiting, asked = new AbortController();
  function searchSoon(form, field) {
    asked.abort();
    clearTimeout(waiting);
    const list = document.getElementById("found");
    list.setAttribute("aria-busy", "true");
    for (const acts of list.querySelectorAll("fieldset")) acts.disabled = true;
    $("[role=status]", list).textContent = "Searching…";
    waiting = setTimeout(() => search(form, field), 350);
  }

  async function search(form, field) {
    const { signal } = asked = new AbortController();
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    const address = query.size ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action");
    try {
      for (const one of query.has("text") ? [`${address}&part=1`, address] : [address]) {
        const answer = await fetch(one, { signal });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const found = page.getElementById("found");
        refuse(form, field, found ? "" : page.querySelector(".refusal")?.textContent ?? "no answer: load the page again");
        if (!found) return;
        document.getElementById("found").replaceWith(found);
        $(".shell").replaceWith($(".shell", page));
        history.replaceState(null, "", address);
        prepare(document);
      }
    } catch {
      if (!signal.aborted) refuse(form, field, "the server does not answer");
    }
  }

  // Said beside the field that was changed last.
  function refuse(form, field, why) {
    form.querySelector(".refusal")?.remove();
    form.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    if (!why) return;
    const said = document.createElement("p");
    said.className = "refusal";
    said.setAttribute("role", "alert");
    said.textContent = why;
    field.setAttribute("aria-invalid", "true");
    field.closest("label").after(said);
  }

  function onClick({ target }) {
    const chosen = target.closest("[data-theme]");
    if (chosen) { remember("theme", chosen.dataset.theme); paint(chosen.dataset.theme); }
    if (target.closest(".news .close")) target.closest(".news").remove();
  }

  function onChange({ target }) {
    if (target.matches("input.all")) for (const one of $$("input[name=id]", target.form)) one.checked = target.checked;
    if (target.matches("#keys-on")) remember("keys", target.checked ? "" : "off");
    count();
  }

  // A time in the reader's own zone, for who points at it.
  function onPoint({ target }) {
    const time = target.closest?.("time[datetime]");
    if (time && !time.title) time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }

  addEventListener("DOMContentLoaded", () => {
    paint(remembered("theme"));
    prepare(document);
    for (const one of $$(".choices[hidden], .news .close")) one.hidden = false;
    $("#keys-on").checked = remembered("keys") !== "off";
    findPlace();
    const here = $(".top nav [aria-current]"), nav = $(".top nav");
    if (here) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - nav.clientWidth / 2;
    addEventListener("keydown", onKey);
    addEventListener("submit", keepPlace);
    addEventListener("click", onClick);
    addEventListener("change", onChange);
    addEventListener("pointerover", onPoint);
    addEventListener("focusin", ({ target }) => { const list = target.closest("table.rows"); if (list && target.closest("tbody")) rove(list, target.closest("tr")); });
    for (const place of $$("[data-live]")) follow(place);
    for (const form of $$("form[data-live-search]")) {
      form.addEventListener("input", (event) => searchSoon(form, event.target));
      form.addEventListener("change", (event) => searchSoon(form, event.target));
    }
  });
})();
