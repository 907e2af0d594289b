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

  // What may be done changes when it is over, and what came back is known.
  function renewRest() {
    if (document.getElementById("rest")) {
      htmx.ajax("GET", location.pathname, { target: "#rest", select: "#rest", swap: "outerHTML" });
    }
  }

  function follow(place) {
    const news = new EventSource(place.dataset.live);
    news.addEventListener("news", (event) => {
      htmx.swap(place, event.data, { swapStyle: "innerHTML" });
    });
    news.addEventListener("over", () => { news.close(); renewRest(); });
    addEventListener("pagehide", () => news.close());
  }

  // Search as you type: the list of the same address, in the place of the list.
  let waiting;
  function searchSoon(form) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const query = new URLSearchParams(new FormData(form));
      for (const [name, value] of [...query]) if (!value) query.delete(name);
      const address = query.size ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action");
      htmx.ajax("GET", address, { target: "#found", select: "#found", swap: "outerHTML" })
        .then(() => { history.replaceState(null, "", address); prepare(document); });
    }, 350);
  }

  addEventListener("DOMContentLoaded", () => {
    prepare(document);
    for (const place of document.querySelectorAll("[data-live]")) follow(place);
    for (const form of document.querySelectorAll("form[data-live-search]")) {
      form.addEventListener("input", () => searchSoon(form));
      form.addEventListener("change", () => searchSoon(form));
    }
  });
})();
