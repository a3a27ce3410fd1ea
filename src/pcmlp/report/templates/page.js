"use strict";
// Draws the charts and maps from the page's JSON; fetches nothing.
(() => {
  const FEW = 12, HEIGHT = 250;
  let data = {};

  // ---- helpers
  const make = (tag, attributes, parent, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const format = (x) => {
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size < 1e-3) return x.toExponential(1);
    return x.toLocaleString("en-US", size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
  };
  const within = (x, span) => format(span > 0 ? Number(x.toFixed(Math.min(8, Math.max(0, 4 - Math.floor(Math.log10(span)))))) : x);
  const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`;
  const every = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- scales: a function of a value to pixels, with its ticks and its inverse
  function linear(low, high, from, to, room, whole = false) {
    const raw = (high - low) / Math.max(1, room), power = 10 ** Math.floor(Math.log10(raw)), ticks = [];
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999 && (!whole || s % 1 === 0)) || 1;
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(Number((i * step).toPrecision(12)));
    const scale = (x) => from + ((x - low) / (high - low)) * (to - from);
    return Object.assign(scale, { ticks, inverse: (p) => low + ((p - from) / (to - from)) * (high - low) });
  }
  function transformed(bend, unbend, ticks, low, high, from, to) {  // linear in bend(x)
    const inner = linear(bend(low), bend(high), from, to, 1);
    return Object.assign((x) => inner(bend(x)), { ticks, inverse: (p) => unbend(inner.inverse(p)) });
  }
  function powers(low, high, between) {
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); 10 ** e <= high * 1.001; e++)
      for (const m of between) if (m * 10 ** e >= low * 0.999 && m * 10 ** e <= high * 1.001) ticks.push(Number((m * 10 ** e).toPrecision(6)));
    return ticks;
  }
  function yScale(kind, values, bottom) {
    if (kind === "share") return linear(0, 1, bottom, 8, 4);
    let low = Math.min(...values), high = Math.max(...values);
    if (kind === "log") {
      low /= 1.15; high *= 1.15;
      const ticks = powers(low, high, high > 100 * low ? [1] : [1, 2, 5]);
      return transformed(Math.log10, (v) => 10 ** v, ticks.filter((_, i) => i % Math.ceil(ticks.length / 7) === 0), low, high, bottom, 8);
    }
    const flat = Math.max(0.1 - (high - low), 0) / 2, margin = 0.04 * (high - low);  // the cost of acting is not progress
    return linear(low - flat - margin, high + flat + margin, bottom, 8, 5);
  }
  function xScale(spec, group, stretched, high, low, left, right) {
    const room = Math.max(2, Math.floor((right - left) / Math.max(60, 8 * format(high).length + 24)));
    if (!stretched || !group.least || spec.against !== "env_steps")
      return linear(low, high, left, right, room, ["iteration", "policy"].includes(spec.against));
    const soft = group.least / 10, ticks = powers(soft, high, high > 300 * soft ? [1] : [1, 2, 5]);
    return transformed((x) => Math.log1p(x / soft), (v) => soft * Math.expm1(v), [0, ...ticks.filter((_, i) => i % Math.ceil(ticks.length / room) === 0)],
      low, high, left, right);
  }

  // ---- charts
  const optionsOf = (box) => Object.fromEntries(every("[data-option]", box).map((input) => [input.dataset.option, input.checked]));
  const visible = (box, group) => every(":scope > fieldset [data-run]", box).filter((input) => input.checked).map((input) => group.runs[input.dataset.run]);
  const path = (x, y, xs, ys) => xs.map((v, i) => `${i ? "L" : "M"}${x(v).toFixed(1)} ${y(ys[i]).toFixed(1)}`).join("");

  function drawChart(figure) {
    const box = figure.closest("[data-group]"), group = data.groups[box.dataset.group], spec = group.charts[figure.dataset.chart];
    const plot = figure.querySelector(".plot"), width = Math.floor(plot.clientWidth), options = optionsOf(box);
    if (!width) return;
    const lines = visible(box, group).filter((run) => run.lines[figure.dataset.chart]).map((run) => ({ run, ...run.lines[figure.dataset.chart] }));
    const focused = plot.contains(document.activeElement);
    plot.replaceChildren();
    const svg = make("svg", { width, height: HEIGHT, tabindex: 0, role: "group" }, plot);
    svg.setAttribute("aria-label", `${spec.title}: ${lines.map((l) => `${l.run.label} ends at ${format(l.mean.at(-1))}`).join(", ") || "no run is selected"}. Arrow keys read values.`);
    if (focused) svg.focus();
    if (!lines.length) {
      make("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, svg, "no selected run has these values");
      return;
    }
    const positive = (v) => spec.scale !== "log" || v > 0;
    const values = lines.flatMap((l) => [...l.mean, ...(options.band !== false || options.seeds ? [...(l.low || []), ...(l.high || [])] : []), ...(options.explore && l.explore ? l.explore : [])]).filter(positive);
    const xs = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b), bottom = HEIGHT - 38;
    const y = yScale(spec.scale, values, bottom);
    const left = 14 + 7 * Math.max(...y.ticks.map((t) => format(t).length)), right = width - 14;
    const x = xScale(spec, group, options.stretched, xs.at(-1) > xs[0] ? xs.at(-1) : xs[0] + 1, spec.against === "env_steps" ? 0 : xs[0], left, right);
    const floor = Math.min(...values), clampedY = (v) => y(positive(v) ? v : floor);
    for (const t of y.ticks) {
      make("path", { class: "grid", d: `M${left} ${y(t)}H${right}` }, svg);
      make("text", { x: left - 6, y: y(t) + 4, "text-anchor": "end" }, svg, format(t));
    }
    let free = -Infinity;
    for (const t of x.ticks) {
      const label = format(t), half = 3.6 * label.length;
      make("path", { class: "base", d: `M${x(t)} ${bottom}v4` }, svg);
      if (x(t) - half < free || x(t) - half < 0) continue;
      make("text", { x: Math.min(x(t), width - half), y: bottom + 17, "text-anchor": "middle" }, svg, label);
      free = x(t) + half + 8;
    }
    make("path", { class: "base", d: `M${left} ${bottom}H${right}` }, svg);
    const against = { env_steps: "environment steps per seed", iteration: "iteration", score: "score", policy: "policy n of the cover" }[spec.against];
    make("text", { x: (left + right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, svg, against);
    for (const l of lines) {
      const style = l.run.look, g = make("g", { "data-label": l.run.label }, svg);
      for (const [low, high] of [[l.low, l.high], [l.surely_low, l.surely_high]])
        if (low && l.x.length > 1 && options.band !== false) make("path", { class: `band ${style}`, d: `${path(x, clampedY, l.x, high)}L${path(x, clampedY, [...l.x].reverse(), [...low].reverse()).slice(1)}Z` }, g);
      if (options.seeds) for (const seed of l.seeds || []) make("path", { class: `seed ${style}`, d: path(x, clampedY, l.x, seed) }, g);
      if (options.explore && l.explore) make("path", { class: `explore ${style}`, d: path(x, clampedY, l.explore_x, l.explore) }, g);
      make("path", { class: `mean ${style}`, d: path(x, clampedY, l.x, l.mean) }, g);
      if (l.x.length <= FEW) l.x.forEach((v, i) => make("circle", { class: `dot ${style}`, cx: x(v), cy: clampedY(l.mean[i]), r: 2.5 }, g));
    }
    const span = spec.scale === "log" ? 0 : Math.max(...values) - Math.min(...values);
    readout(figure, svg, lines, x, xs, bottom, against, (v) => within(v, span));
  }

  function readout(figure, svg, lines, x, xs, bottom, against, formatValue) {  // shows the values at a place, by pointer, finger or arrow keys
    const guide = make("path", { class: "guide", visibility: "hidden" }, svg);
    let at = -1;
    const hide = () => { at = -1; guide.setAttribute("visibility", "hidden"); figure.querySelector(".tip")?.remove(); };
    const show = (i) => {
      hide();
      at = Math.max(0, Math.min(xs.length - 1, i));
      const here = xs[at], px = x(here), tip = document.createElement("div");
      guide.setAttribute("d", `M${px} 8V${bottom}`); guide.setAttribute("visibility", "visible");
      const rows = lines.map((l) => [l, l.x.findLastIndex((v) => v <= here)]).filter(([l, k]) => k >= 0 && here <= l.x.at(-1));
      tip.className = "tip"; tip.setAttribute("role", "status");
      tip.append(`${format(here)} ${against}`);
      for (const [l, k] of rows.sort(([a, i], [b, j]) => b.mean[j] - a.mean[i])) {
        const row = document.createElement("div"), name = document.createElement("span"), value = document.createElement("span");
        const swatch = make("svg", { class: "swatch", viewBox: "0 0 30 10" }, row);
        make("path", { class: `mean ${l.run.look}`, d: "M0 5H30" }, swatch);
        name.textContent = l.run.label;
        value.textContent = formatValue(l.mean[k]) + (l.seeds && rows.length <= 6 ? ` (${formatValue(l.low[k])} to ${formatValue(l.high[k])})` : "");
        row.append(name, value); tip.append(row);
      }
      figure.append(tip);
      const plot = svg.parentElement, beside = px < plot.clientWidth / 2 ? plot.offsetLeft + px + 12 : plot.offsetLeft + px - 12 - tip.offsetWidth;
      tip.style.left = `${Math.max(4, Math.min(beside, figure.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${plot.offsetTop + 4}px`;
    };
    const near = (event) => {
      const value = x.inverse(event.clientX - svg.getBoundingClientRect().left);
      show(xs.reduce((best, v, i) => (Math.abs(x(v) - x(value)) < Math.abs(x(xs[best]) - x(value)) ? i : best), 0));
    };
    svg.addEventListener("pointermove", near); svg.addEventListener("pointerdown", near);
    svg.addEventListener("pointerleave", hide); svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: at < 0 ? xs.length - 1 : at - 1, ArrowRight: at + 1, Home: 0, End: xs.length - 1 }[event.key];
      if (event.key === "Escape") hide();
      if (to !== undefined) { show(to); event.preventDefault(); }
    });
  }

  // ---- maps
  function drawMap(figure) {
    const map = data.maps[figure.dataset.map], plot = figure.querySelector(".plot"), seed = Number(figure.querySelector("select")?.value || 0);
    const room = Math.floor(plot.clientWidth), left = 46, under = 38;
    if (!room) return;
    const wide = Math.min(room - left - 8, 520, 440 * map.shape), tall = wide / map.shape;
    plot.replaceChildren();
    const svg = make("svg", { width: left + wide + 8, height: tall + under + 8, role: "img", "aria-label": `map of ${map.labels.join(" and ")}` }, plot);
    const g = make("g", { transform: `translate(${left} 8)` }, svg), px = (v) => (v / 1000) * wide, py = (v) => tall - (v / 1000) * tall;
    for (const name of ["wall", "goal"]) for (const [row, column, length] of map[name]?.runs || []) {
      const w = wide / map[name].columns, h = tall / map[name].rows;
      make("rect", { class: name, x: column * w, y: tall - (row + 1) * h, width: length * w + 0.3, height: h + 0.3 }, g);
    }
    for (const points of map.points[seed]) {
      let d = "";
      for (let i = 0; i < points.length; i += 2) d += `M${px(points[i]).toFixed(1)} ${py(points[i + 1]).toFixed(1)}h0`;
      make("path", { "data-policy": "", d }, g);
    }
    make("rect", { class: "frame", width: wide, height: tall }, g);
    const xTicks = linear(map.low[0], map.high[0], 0, wide, 6, map.whole), yTicks = linear(map.low[1], map.high[1], tall, 0, 4, map.whole);
    for (const t of xTicks.ticks) make("text", { x: xTicks(t), y: tall + 15, "text-anchor": "middle" }, g, format(t));
    for (const t of yTicks.ticks) make("text", { x: -5, y: yTicks(t) + 4, "text-anchor": "end" }, g, format(t));
    make("text", { x: wide / 2, y: tall + 32, "text-anchor": "middle" }, g, map.labels[0]);
    make("text", { transform: `translate(-36 ${tall / 2}) rotate(-90)`, "text-anchor": "middle" }, g, map.labels[1]);
    slide(figure);
  }
  function slide(figure) {
    const map = data.maps[figure.dataset.map], slider = figure.querySelector("input"), n = Number(slider.value);
    const seed = Number(figure.querySelector("select")?.value || 0), policy = map.policies[n];
    every("[data-policy]", figure).forEach((points, i) => {
      points.setAttribute("class", i < n ? "before" : i === n ? "now" : "ahead");
      points.setAttribute("stroke-width", (i === n ? 1.3 : 1) * map.dot * 0.6);
    });
    const all = map.policies[0] === policy ? "" : `; policies ${map.policies[0]} to ${policy} together ${percent(map.together[seed][n])}`;
    figure.querySelector("output").textContent = `Policy ${policy} entered ${percent(map.alone[seed][n])} of ${map.of}${all}.`;
    slider.setAttribute("aria-valuetext", `policy ${policy}`);
  }

  // ---- redrawing: switches and sizes
  const draw = (figure) => {
    const plot = figure.querySelector(".plot");
    if (!plot.checkVisibility()) return;  // folded away: drawn when it is opened, at its new size
    plot.dataset.width = plot.clientWidth;
    (figure.classList.contains("map") ? drawMap : drawChart)(figure);
  };
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.dataset.width !== String(target.clientWidth)) draw(target.closest("figure"));
  });
  function start() {
    data = JSON.parse(document.getElementById("data").textContent);
    resized.disconnect();
    every("figure.chart, figure.map").forEach(draw);
    every(".plot").forEach((plot) => resized.observe(plot));
  }
  document.addEventListener("input", ({ target }) => {
    const figure = target.closest("figure.map"), box = target.closest("[data-group]");
    if (figure) target.type === "range" ? slide(figure) : draw(figure);
    else if (box) every("figure.chart", box).forEach(draw);
  });
  document.addEventListener("click", ({ target }) => {
    if (target.dataset?.all === undefined) return;
    const box = target.closest("[data-group]");
    every(":scope > fieldset [data-run]", box).forEach((input) => { input.checked = target.dataset.all === "on"; });
    every("figure.chart", box).forEach(draw);
  });
  document.addEventListener("renewed", start);  // sent by watch.js
  start();
})();
