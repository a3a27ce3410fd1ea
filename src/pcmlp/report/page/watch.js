"use strict";
// In a page that `pcmlp watch` serves: asks every two seconds whether there is a newer one, and takes it over.
// What the reader has set stays; a slider at its end stays at the end.
(() => {
  const every = (selector) => [...document.querySelectorAll(selector)];
  const live = document.getElementById("live"), root = document.documentElement;
  const kept = () => new Map(every("[data-key]").map((element) => {
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
    const fresh = new DOMParser().parseFromString(text, "text/html"), states = kept(), scroll = scrollY;
    const focused = document.activeElement?.dataset?.key;
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title = fresh.title;
    restore(states);
    document.dispatchEvent(new Event("renewed"));
    if (focused) every("[data-key]").find((element) => element.dataset.key === focused)?.focus({ preventScroll: true });
    scrollTo({ top: scroll, behavior: "instant" });
  }
  async function asked(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error("cannot make the page at the moment");
    return answer.text();
  }
  async function look() {
    try {
      const version = await asked("version"), changed = Number(version.split("-")[0]);
      if (version !== root.dataset.watch) {
        renew(await asked("./"));
        root.dataset.watch = version;
      }
      live.textContent = `live; ${changed ? `last change ${new Date(changed).toLocaleTimeString()}` : "nothing is written yet"}`;
    } catch (error) {
      live.textContent = `pcmlp watch ${error instanceof TypeError ? "has stopped" : error.message}; this is the last it has shown`;
    }
    setTimeout(look, 2000);
  }
  live.hidden = false;
  look();
})();
