"use strict";
// What scripts add to pages that work without them: copying, choosing all, search as you type, and news.
// What comes from the server is a part of a page that the server has escaped; nothing else becomes markup.
(() => {
  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.firstChild.data = "Copied";
      setTimeout(() => { button.firstChild.data = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
    }
  }

  function prepare(root) {
    for (const button of root.querySelectorAll("button.copy[hidden]")) {
      button.hidden = false;
      button.addEventListener("click", () => copy(button));
    }
    for (const all of root.querySelectorAll("input.all[hidden]")) {
      all.hidden = false;
      all.addEventListener("change", () => {
        for (const one of all.closest("table").querySelectorAll("input[name=id]")) one.checked = all.checked;
      });
    }
  }

  // What may be done changes when something begins or ends, and what came back is known.
  function renewRest() {
    if (document.getElementById("rest")) {
      htmx.ajax("GET", location.pathname, { target: "#rest", select: "#rest", swap: "outerHTML" });
    }
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

  // Search as you type: the list of the same address, in the place of the list. Until the answer to what
  // stands in the fields is there, the list is of something else, and nothing may be done with it.
  let waiting, asked = new AbortController();
  function searchSoon(form, field) {
    asked.abort();
    clearTimeout(waiting);
    const list = document.getElementById("found");
    list.setAttribute("aria-busy", "true");
    for (const acts of list.querySelectorAll("fieldset")) acts.disabled = true;
    waiting = setTimeout(() => search(form, field), 350);
  }

  async function search(form, field) {
    const { signal } = asked = new AbortController();
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    const address = query.size ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action");
    try {
      const answer = await fetch(address, { signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.getElementById("found");
      refuse(form, field, found ? "" : page.querySelector(".refusal")?.textContent ?? "no answer: load the page again");
      if (!found) return;
      document.getElementById("found").replaceWith(found);
      history.replaceState(null, "", address);
      prepare(found);
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

  addEventListener("DOMContentLoaded", () => {
    prepare(document);
    for (const place of document.querySelectorAll("[data-live]")) follow(place);
    for (const form of document.querySelectorAll("form[data-live-search]")) {
      form.addEventListener("input", (event) => searchSoon(form, event.target));
      form.addEventListener("change", (event) => searchSoon(form, event.target));
    }
  });
})();
