"use strict";
// The report without a server: the chart, the search over the letters, and one letter at a time.
// Everything in `data` was written by strangers: it only ever becomes text content.
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const letters = data.rows.map((row) => Object.fromEntries(data.columns.map((name, i) => [name, row[i]])));
  for (const letter of letters) {
    letter.cause ??= "no_verdict";
    letter.advice ??= "no_verdict";
    letter.haystack = data.columns.map((name) => letter[name] ?? "").join(" ").toLowerCase();
  }
  const PAGE = 25;
  const SELECTS = { cause: "cause", source: "source", advice: "advice-filter" };
  const EXACT = { incident_id: ["incident", "--incident"], fingerprint: ["failure", "--failure"] };
  const state = { column: "died", descending: true, page: 0, exact: null, found: letters, open: null };

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => child instanceof Node ? child : String(child)));
    return made;
  };
  const moment = (text) => (text ? text.slice(0, 19).replace("T", " ") : "");
  const shorten = (text) => (text.length > 120 ? `${text.slice(0, 119)}…` : text);
  const failure = (letter) => [letter.exception_class, letter.exception_message].filter(Boolean).join(": ");

  // --- the list -------------------------------------------------------------------------------------
  function search() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.entries(SELECTS).map(([name, id]) => [name, byId(id).value]).filter(([, value]) => value);
    if (state.exact) chosen.push(state.exact);
    state.found = letters.filter((letter) =>
      chosen.every(([name, value]) => letter[name] === value) && words.every((word) => letter.haystack.includes(word)));
    const sign = state.descending ? -1 : 1;
    const key = (letter) => letter[state.column] ?? "";
    state.found.sort((a, b) => (key(a) === "") - (key(b) === "") || sign * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    state.page = 0;
    draw();
    remember();
  }

  function counted() {
    const found = state.found.length.toLocaleString("en");
    const letters = `${found} ${state.found.length === 1 ? "letter" : "letters"}`;
    if (!state.exact) return letters;
    const [name, value] = state.exact;
    const [what, option] = EXACT[name];
    const all = data.totals[name][value] ?? state.found.length;
    return all > state.found.length
      ? `${found} of ${all.toLocaleString("en")} letters of ${what} ${value} are in this file; all of them: dlq ls ${option} ${value}`
      : `${letters} of ${what} ${value}`;
  }

  // --- the address: filters and the open letter live in its fragment ------------------------------------
  function remember() {
    const chosen = Object.entries(SELECTS).map(([name, id]) => [name, byId(id).value]);
    const known = [...chosen, ["search", byId("search").value], ...(state.exact ? [state.exact] : []), ["letter", state.open]];
    const fragment = new URLSearchParams(known.filter(([, value]) => value)).toString();
    if (fragment || inAddress()) history.replaceState(null, "", fragment ? `#${fragment}` : location.href.split("#")[0]);
  }

  function inAddress() { // what is there may also be the name of a section
    const known = new URLSearchParams(location.hash.slice(1));
    return [...Object.keys(SELECTS), ...Object.keys(EXACT), "search", "letter"].some((name) => known.has(name)) ? known : null;
  }

  function recall() {
    const known = inAddress();
    if (!known) return false;
    for (const [name, id] of Object.entries(SELECTS)) byId(id).value = known.get(name) ?? "";
    byId("search").value = known.get("search") ?? "";
    state.exact = Object.keys(EXACT).filter((name) => known.has(name)).map((name) => [name, known.get(name)])[0] ?? null;
    const letter = letters.find((one) => one.record_id === known.get("letter"));
    search();
    byId("letters").scrollIntoView();
    if (letter) show(letter);
    return true;
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(state.found.length / PAGE));
    const shown = state.found.slice(state.page * PAGE, (state.page + 1) * PAGE);
    byId("list").tBodies[0].replaceChildren(...shown.map(row));
    byId("status").textContent = counted();
    byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
    byId("previous").disabled = state.page === 0;
    byId("following").disabled = state.page >= pages - 1;
    for (const button of document.querySelectorAll("button.sort")) {
      const sorted = button.dataset.column === state.column;
      button.closest("th").setAttribute("aria-sort", sorted ? (state.descending ? "descending" : "ascending") : "none");
    }
  }

  function row(letter) {
    const open = element("button", { type: "button", class: "plain" }, letter.record_id.slice(0, 12));
    open.addEventListener("click", () => show(letter));
    const cells = [moment(letter.died), letter.source, letter.died_of ?? letter.cause, shorten(failure(letter)), letter.advice, letter.replay_state];
    const drawn = cells.map((cell, place) => element("td", place === 3 ? { class: "text" } : {}, cell ?? ""));
    return element("tr", {}, element("td", {}, open), ...drawn);
  }

  // --- one letter -----------------------------------------------------------------------------------
  const list = (pairs) => element("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== false && value !== undefined && value !== "")
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const block = (title, content) => (content ? [element("h3", {}, title), content] : []);
  const text = (content) => (content ? element("pre", { tabindex: "0" }, content) : null);

  const MARKS = { own: "  > ", library: "    ", folded: "    " };
  const trace = (lines) => element("pre", { tabindex: "0" }, ...lines.map(([kind, line]) => element("span", { class: kind }, `${MARKS[kind] ?? ""}${line}\n`)));

  function show(letter) {
    const isDead = letter.end === "died";
    const story = data.stories[letter.record_id] ?? {};
    const close = element("button", { type: "button" }, "Close");
    close.addEventListener("click", () => byId("letter").close());
    const title = element("h2", { id: "letter-title" }, `${letter.died_of ?? letter.cause} in ${letter.dead_letter_queue ?? letter.source}`);
    const deaths = [...(story.deaths ?? [])].reverse().map((d) => [moment(d.time), `${d.reason ?? "died"} in ${d.queue ?? "?"}${d.count > 1 ? `, ${d.count} times` : ""}`]);
    byId("letter-content").replaceChildren(
      element("header", {}, title, close),
      list([["cause", letter.died_of ?? letter.cause], ["evidence", letter.evidence], ["advice", letter.advice], ["because", letter.advice_reason],
        ["source", letter.source], ["lies in", letter.dead_letter_queue], [isDead ? "died in" : "meant for", letter.origin], ["attempts", letter.attempts],
        ["laps", letter.laps], ["verdict of", letter.analysis], ["replay", letter.replay_state]]),
      ...block("The way it went", list([[moment(letter.published_at), letter.published_at && "published"], ...deaths, [moment(letter.died), (letter.died || !isDead) && (isDead ? "dead since" : letter.end)]])),
      ...block("Failure", story.trace?.length ? trace(story.trace) : text([failure(letter), story.failure_text].filter(Boolean).join("\n\n"))),
      ...block(`Body (${[`${letter.body_size ?? 0} bytes`, story.body_note].filter(Boolean).join(", ")})`, text(story.body)),
      ...block("Headers", story.headers && Object.keys(story.headers).length ? list(Object.entries(story.headers).sort()) : null),
      ...block("Identity", list([["record id", letter.record_id], ["message id", letter.message_id], ["key", letter.key], ["fingerprint", letter.fingerprint], ["incident", letter.incident_id]])),
      ...block("All of it", text(`dlq show ${letter.record_id.slice(0, 12)}`)),
    );
    state.open = letter.record_id;
    remember();
    if (!byId("letter").open) byId("letter").showModal();
  }

  // --- the timeline ---------------------------------------------------------------------------------
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shade = (place) => css(`--c${Math.min(place, 7)}`);
  let chart = null;

  // Bands behind the bars: when incidents were.
  const bands = {
    id: "bands",
    beforeDatasetsDraw({ ctx, chartArea, scales }) {
      const starts = data.timeline.buckets.map((bucket) => Date.parse(bucket.start));
      const place = (time) => Math.max(0, starts.findLastIndex((start) => start <= Date.parse(time)));
      const half = scales.x.width / starts.length / 2;
      ctx.save();
      ctx.fillStyle = css("--alarm");
      ctx.globalAlpha = 0.08;
      for (const incident of data.incidents.filter((i) => i.start && i.end)) {
        const left = scales.x.getPixelForValue(place(incident.start)) - half;
        const right = scales.x.getPixelForValue(place(incident.end)) + half;
        ctx.fillRect(left, chartArea.top, right - left, chartArea.height);
      }
      ctx.restore();
    },
  };

  function drawTimeline() {
    if (!byId("timeline")) return;
    chart?.destroy();
    const { buckets } = data.timeline;
    const grid = { color: css("--line") };
    const ticks = { color: css("--soft"), maxRotation: 0, autoSkipPadding: 24 };
    chart = new Chart(byId("timeline"), {
      type: "bar",
      plugins: [bands],
      data: {
        labels: buckets.map((bucket) => moment(bucket.start).slice(5, 16)),
        datasets: data.causes.map((cause, place) => ({
          label: cause, data: buckets.map((bucket) => bucket.causes[cause] ?? 0), backgroundColor: shade(place),
          barPercentage: 1, categoryPercentage: 0.92,
        })),
      },
      options: {
        animation: false, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
        scales: { x: { stacked: true, grid: { display: false }, ticks }, y: { stacked: true, grid, ticks: { ...ticks, precision: 0 } } },
        plugins: {
          legend: { position: "bottom", labels: { color: css("--ink"), boxWidth: 12, boxHeight: 12 } },
          tooltip: { filter: (item) => item.raw > 0 },
        },
      },
    });
  }

  // --- the retention clock: what is left of each time, while somebody reads -----------------------------
  function tick() {
    for (const time of document.querySelectorAll("#retention ~ .scroll time")) {
      const hours = Math.round((Date.parse(time.dateTime) - Date.now()) / 360000) / 10;
      const left = hours >= 48 ? `in ${Math.round(hours / 24)} days` : hours > 0 ? `in ${hours} hours` : "past";
      time.textContent = `${moment(time.dateTime).slice(0, 16)} (${left})`;
    }
  }

  // --- wiring ---------------------------------------------------------------------------------------
  function drill(name, value) {
    byId("filters").reset();
    state.exact = name in SELECTS ? null : [name, value];
    if (name in SELECTS) byId(SELECTS[name]).value = value;
    search();
    byId("letters").scrollIntoView();
    byId("search").focus({ preventScroll: true });
  }

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.firstChild.data = "Copied";
      setTimeout(() => { button.firstChild.data = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code); // a browser that lets no file use the clipboard
    }
  }

  byId("letter").addEventListener("close", () => { state.open = null; remember(); });
  addEventListener("hashchange", recall);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", search);
  byId("filters").addEventListener("reset", () => { state.exact = null; setTimeout(search); });
  byId("previous").addEventListener("click", () => { state.page -= 1; draw(); });
  byId("following").addEventListener("click", () => { state.page += 1; draw(); });
  for (const button of document.querySelectorAll("button.sort")) {
    button.addEventListener("click", () => {
      state.descending = state.column === button.dataset.column ? !state.descending : false;
      state.column = button.dataset.column;
      search();
    });
  }
  for (const button of document.querySelectorAll("button.drill")) {
    button.addEventListener("click", () => drill(button.dataset.filter, button.dataset.value));
  }
  for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", () => copy(button));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
  matchMedia("print").addEventListener("change", drawTimeline);
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; chart?.resize(); });
  tick();
  setInterval(tick, 60000);
  if (!recall()) search();
  drawTimeline();
})();
