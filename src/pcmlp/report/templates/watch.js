"use strict";
// For a page that `pcmlp watch` serves: asks every two seconds for a newer version and shows it.
// What the reader has set stays as it is; a slider at its end stays at its end.
(() => {
  const every = (selector) => [...document.querySelectorAll(selector)];
  const live = document.getElementById("live"), root = document.documentElement;
  const readSettings = () => new Map(every("[data-key]").map((element) => {
    const atEnd = element.type === "range" && element.value === element.max;
    return [element.dataset.key, { checked: element.checked, open: element.open, value: atEnd ? undefined : element.value }];
  }));
  function restore(states) {
    for (const element of every("[data-key]")) {
      const { checked, open, value } = states.get(element.dataset.key) || {};
      if (checked !== undefined) element.checked = checked;
      if (open !== undefined) element.open = open;
      if (value !== undefined && element.type !== "checkbox") element.value = value;
    }
  }
  function renew(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html"), states = readSettings(), scroll = scrollY;
    const focused = document.activeElement?.dataset?.key;
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title = fresh.title;
    restore(states);
    document.dispatchEvent(new Event("renewed"));
    if (focused) every("[data-key]").find((element) => element.dataset.key === focused)?.focus({ preventScroll: true });
    scrollTo({ top: scroll, behavior: "instant" });
  }
  async function get(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error("cannot make the page at the moment");
    return answer.text();
  }
  async function look() {
    try {
      const version = await get("version"), changed = Number(version.split("-")[0]);
      if (version !== root.dataset.watch) {
        renew(await get("./"));
        root.dataset.watch = version;
      }
      live.textContent = `live; ${changed ? `last change ${new Date(changed).toLocaleTimeString()}` : "nothing has been written yet"}`;
    } catch (error) {
      live.textContent = `pcmlp watch ${error instanceof TypeError ? "has stopped" : error.message}; this is the last page it sent`;
    }
    setTimeout(look, 2000);
  }
  live.hidden = false;
  look();
})();
