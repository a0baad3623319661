// Draws figures when they become visible, and updates the page on server-sent events. The only library is plotly.
// Without it the pages are complete but for their figures: filters, sorting and actions are links and forms.
"use strict";
(() => {
  const NARROW = 480; // pixels: the width of a figure on a phone
  const REFRESH = 1500; // milliseconds between two updates of a figure
  const live = document.getElementById("live");
  const message = document.getElementById("message");
  const seen = new Set(); // figures in view
  const state = new WeakMap(); // figure -> { tag, busy, again, text, brushes }
  let silence = 0;

  function say(text) {
    message.textContent = text;
    message.classList.add("shown");
    clearTimeout(silence);
    silence = setTimeout(() => message.classList.remove("shown"), 5000);
  }

  // plotly is large: it is loaded with the first figure
  let plotly = null;
  function library() {
    plotly ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = "/static/plotly.js";
      script.onload = done;
      script.onerror = () => failed(new Error("plotly.js could not be loaded"));
      document.head.append(script);
    });
    return plotly;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Replace the colours of text, axes and grid by those of the page.
  function recoloured(text) {
    const [ink, soft, faint, grid] = ["--ink", "--soft", "--faint", "--grid"].map(colour);
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16));
    return JSON.parse(
      text.replaceAll("#1F2933", ink).replaceAll("#52606D", soft).replaceAll("#7B8794", faint)
        .replaceAll("#E4E7EB", grid).replaceAll("rgba(31,41,51,", `rgba(${r},${g},${b},`),
    );
  }

  function address(figure, preview) {
    const at = new URL(figure.dataset.figure, location.href);
    if (preview) at.searchParams.set("forecasts", "no");
    if (figure.id === "figure-slices" && figure.clientWidth < NARROW) at.searchParams.set("columns", "2");
    for (const option of figure.querySelectorAll("[data-option]")) at.searchParams.set(option.dataset.option, option.value);
    return at;
  }

  const coarse = matchMedia("(pointer: coarse)").matches;
  const FLAT = { orientation: "h", thickness: 10, x: 0.5, xanchor: "center", y: 1, yanchor: "bottom", title: { text: "" }, len: 0.9 };

  function arranged(data, layout, narrow) {
    const clear = "rgba(0,0,0,0)";
    Object.assign(layout, { paper_bgcolor: clear, plot_bgcolor: clear, autosize: true });
    delete layout.title;
    delete layout.width;
    delete layout.height;
    const panels = Object.keys(layout).some((key) => /^xaxis\d/.test(key));
    layout.margin = { l: narrow ? 48 : 66, r: 14, t: panels ? 34 : 12, b: layout.scene ? 10 : 56 };
    layout.font.size = narrow ? 12 : 13;
    if (coarse && layout.dragmode !== "select") layout.dragmode = false; // a finger on a figure scrolls the page
    layout.legend = { orientation: "h", x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container", font: { size: 12 } };
    const named = data.filter((trace) => trace.showlegend !== false).length > 1;
    layout.showlegend = named && !layout.scene && !panels;
    if (layout.showlegend) layout.margin.b = narrow ? 96 : 78; // two rows on a narrow page
    for (const [key, axis] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      axis.tickfont = { size: axis.type === "log" && !axis.ticktext ? 10 : 12 }; // plotly enlarges powers of ten by a quarter
      if (axis.title) axis.title.font = { size: 13 };
    }
    if (layout.scene) {
      for (const axis of ["xaxis", "yaxis", "zaxis"]) layout.scene[axis].backgroundcolor = clear;
      if (coarse) layout.scene.dragmode = false;
      if (narrow) {
        for (const trace of data) for (const part of [trace.line, trace.marker]) if (part?.colorbar) Object.assign(part.colorbar, FLAT);
        for (const axis of "xyz") layout.scene.camera.eye[axis] *= 1.5; // so that the names of axes fit
      }
    }
    if (narrow) {
      const bars = data.filter((trace) => trace.type === "bar" && trace.orientation !== "h");
      for (const trace of bars) trace.textposition = "none"; // they would overlap
      if (!bars.length) layout.xaxis.nticks ??= 5;
      if (data.some((trace) => trace.meta?.brush)) layout.xaxis.tickangle = 60; // of parallel coordinates
    }
    return layout;
  }

  // Numbers as plotly.py writes them: a list, or the bytes of an array.
  const ARRAYS = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
  function numbers(values) {
    if (!values?.bdata) return Array.from(values ?? []);
    return Array.from(new ARRAYS[values.dtype](Uint8Array.from(atob(values.bdata), (byte) => byte.charCodeAt(0)).buffer));
  }

  // A logarithmic axis, with the same range as far as it is positive.
  function logarithmic(layout, data, axis) {
    const values = data.flatMap((trace) => numbers(trace[axis])).filter((value) => value > 0);
    const [low, high] = [...(layout[`${axis}axis`].range ?? [1, 1])].sort((a, b) => a - b);
    if (!values.length || high <= 0) return;
    const least = low > 0 ? low : axis === "x" ? 0.9 : 0.95 * values.reduce((a, b) => Math.min(a, b));
    Object.assign(layout[`${axis}axis`], { type: "log", range: [Math.log10(least), Math.log10(high)], nticks: 6 });
  }

  const decoded = (html) => new DOMParser().parseFromString(html ?? "", "text/html").body.textContent;

  // Draw what was fetched, with the scales, the zoom and the brushes that the reader has chosen.
  async function show(figure) {
    const now = state.get(figure), canvas = figure.querySelector(".canvas");
    const { data, layout, frames } = recoloured(now.text);
    const words = layout.meta ?? {}, steps = layout.sliders?.[0]?.steps ?? [];
    figure.querySelector("figcaption h2").textContent = decoded(words.title);
    figure.querySelector("figcaption p").textContent = (now.preview ? "computing forecasts; " : "") + decoded(words.subtitle);
    canvas.setAttribute("aria-label", `${decoded(words.title)}: ${decoded(words.subtitle)}`);
    canvas.querySelector(".waiting")?.remove();
    delete layout.sliders; // the page has controls that work with a keyboard
    delete layout.updatemenus;
    const rotated = canvas._fullLayout?.scene?.camera; // keep the viewpoint
    arranged(data, layout, canvas.clientWidth < NARROW);
    if (rotated && layout.scene) layout.scene.camera = rotated;
    const panels = Object.keys(layout).filter((key) => /^xaxis/.test(key)).length;
    if (panels > 1 && canvas.clientWidth < NARROW) canvas.style.height = `${150 * Math.ceil(panels / 2) + 60}px`;
    for (const box of figure.querySelectorAll("[data-log]:checked")) logarithmic(layout, data, box.dataset.log);
    if (figure.dataset.zoomed) {
      for (const axis of ["xaxis", "yaxis"]) layout[axis].range = canvas._fullLayout[axis].range.slice();
    }
    const brushed = data.find((trace) => trace.meta?.brush);
    if (brushed) {
      Object.assign(layout, { dragmode: "select", selectdirection: "any" });
      for (const axis of ["xaxis", "yaxis"]) layout[axis].fixedrange = true;
      data.push({ type: "scatter", mode: "lines", x: [], y: [], showlegend: false, hoverinfo: "skip", meta: { brushed: true }, line: { color: colour("--good"), width: 2 } });
    }
    const config = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" };
    await Plotly.react(canvas, { data, layout, frames: frames ?? [], config });
    if (!canvas.dataset.heard) listen(figure, canvas);
    if (brushed) brush(figure, canvas);
    if (frames) film(figure, canvas, frames, steps);
  }

  function listen(figure, canvas) {
    canvas.dataset.heard = "yes";
    canvas.on("plotly_relayout", (change) => {
      if (Object.keys(change).some((key) => /axis\.range/.test(key))) figure.dataset.zoomed = "yes";
      if (Object.keys(change).some((key) => /autorange/.test(key))) delete figure.dataset.zoomed;
    });
    canvas.on("plotly_hover", ({ points }) => bands(canvas, points[0].data.meta?.run));
    canvas.on("plotly_unhover", () => bands(canvas, null));
    canvas.on("plotly_click", ({ points }) => {
      const field = figure.querySelector("[data-option=runs]");
      const run = points[0].data.meta?.run ?? points[0].customdata;
      if (!field || !run) return;
      const runs = new Set(field.value.split(/\D+/).filter(Boolean));
      if (!runs.delete(String(run))) runs.add(String(run));
      field.value = [...runs].join(", ");
      draw(figure);
    });
    canvas.on("plotly_selected", (event) => {
      if (!event?.range?.y) return;
      const brushes = (state.get(figure).brushes ??= new Map()), [left, right] = event.range.x;
      for (let axis = Math.ceil(Math.min(left, right)); axis <= Math.max(left, right); axis++) brushes.set(axis, [...event.range.y].sort((a, b) => a - b));
      brush(figure, canvas);
    });
    canvas.on("plotly_deselect", () => { state.get(figure).brushes?.clear(); brush(figure, canvas); });
  }

  // Bands of highlighted runs are always visible, those of another run while the pointer is on it.
  function bands(canvas, run) {
    const found = canvas.data.flatMap((trace, index) => (trace.meta?.band ? [index] : []));
    const opacity = found.map((index) => { const { meta } = canvas.data[index]; return meta.shown || meta.run === run ? 1 : 0; });
    if (found.some((index, i) => canvas.data[index].opacity !== opacity[i])) Plotly.restyle(canvas, { opacity }, found);
  }

  // Draw the runs that are within all brushes, and name them.
  function brush(figure, canvas) {
    const brushes = state.get(figure).brushes ?? new Map();
    const trace = canvas.data.find((one) => one.meta?.brush), { meta } = trace;
    const [x, y, customdata] = [trace.x, trace.y, trace.customdata].map(numbers);
    const lines = canvas.data.findIndex((trace) => trace.meta?.brushed), chosen = [], found = { x: [], y: [] };
    for (let first = 0; brushes.size && first < x.length; first += meta.brush) {
      const inside = [...brushes].every(([axis, [low, high]]) => axis < 0 || axis >= meta.brush || (y[first + axis] >= low && y[first + axis] <= high));
      if (!inside) continue;
      chosen.push(customdata[first]);
      for (let i = first; i < first + meta.brush; i++) { found.x.push(x[i]); found.y.push(y[i]); }
      found.x.push(null);
      found.y.push(null);
    }
    Plotly.restyle(canvas, { x: [found.x], y: [found.y] }, [lines]);
    const told = figure.querySelector(".brushed");
    if (!told) return;
    told.textContent = brushes.size ? `${chosen.length} runs selected. ` : "Drag over an axis to select runs; double-click to clear. ";
    if (!chosen.length) return;
    const link = told.appendChild(document.createElement("a"));
    link.href = `/studies/${live.dataset.key}/curves?runs=${chosen.slice(0, 20).join(",")}`;
    link.textContent = `Curves of ${chosen.slice(0, 20).join(", ")}`;
  }

  // The player of a figure with frames.
  function film(figure, canvas, frames, steps) {
    const slider = figure.querySelector("[data-frame]"), button = figure.querySelector("[data-play]"), now = state.get(figure);
    if (!slider) return;
    const last = frames.length - 1, kept = frames.findIndex((frame) => frame.name === now.frame);
    const at = (place) => {
      now.frame = place === last ? null : frames[place].name;
      slider.value = place;
      slider.setAttribute("aria-valuetext", steps[place].label);
      figure.querySelector("output").textContent = steps[place].label;
      const still = { mode: "immediate", frame: { duration: 0, redraw: false }, transition: { duration: 0 } };
      return Plotly.animate(canvas, [frames[place].name], still);
    };
    const stop = () => { clearInterval(now.playing); now.playing = 0; button.textContent = "Play"; };
    slider.max = last;
    slider.oninput = () => { stop(); at(Number(slider.value)); };
    button.onclick = () => {
      if (now.playing) { stop(); return; }
      if (Number(slider.value) >= last) at(0);
      button.textContent = "Pause";
      now.playing = setInterval(() => { if (Number(slider.value) >= last) stop(); else at(Number(slider.value) + 1); }, 200);
    };
    at(kept < 0 ? last : kept);
  }

  function zoom(figure, factor) {
    const canvas = figure.querySelector(".canvas");
    if (!canvas._fullLayout) return;
    if (factor === "reset") { delete figure.dataset.zoomed; show(figure); return; }
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      const [low, high] = canvas._fullLayout[axis].range, half = (high - low) / 2, middle = low + half;
      change[`${axis}.range`] = [middle - half * factor, middle + half * factor];
    }
    Plotly.relayout(canvas, change);
    figure.dataset.zoomed = "yes";
  }

  // At most two figures are requested at once: the server computes one forecast at a time.
  let free = 2;
  const waiting = [];
  async function acquire() {
    if (free > 0) { free -= 1; return; }
    await new Promise((done) => waiting.push(done));
  }
  function release() {
    const next = waiting.shift();
    if (next) next(); else free += 1;
  }

  // Draw a figure, at most once in REFRESH milliseconds.
  function soon(figure) {
    const now = state.get(figure);
    if (!now) { draw(figure); return; }
    clearTimeout(now.next);
    now.next = setTimeout(() => draw(figure), Math.max(0, now.begun + REFRESH - performance.now()));
  }

  async function draw(figure) {
    const now = state.get(figure) ?? { tag: "", busy: false, again: false };
    state.set(figure, now);
    now.begun = performance.now();
    if (now.busy) { now.again = true; return; }
    if (now.playing) return; // what is played does not change under the reader
    now.busy = true;
    await acquire();
    const canvas = figure.querySelector(".canvas");
    try {
      // show losses without forecasts first
      const preview = figure.id === "figure-curves" && !now.tag;
      now.again ||= preview;
      const at = address(figure, preview);
      const headers = now.tag && now.at === at.href ? { "If-None-Match": now.tag } : {};
      const [answer] = await Promise.all([fetch(at, { headers, cache: "no-store" }), library()]);
      if (answer.status === 304) return;
      const text = await answer.text();
      if (!answer.ok) throw new Error(JSON.parse(text).error ?? answer.statusText);
      if (now.at !== at.href && !preview && !now.preview) delete figure.dataset.zoomed;
      Object.assign(now, { text, preview });
      await show(figure);
      Object.assign(now, { tag: answer.headers.get("ETag") ?? "-", at: at.href });
      figure.dataset.version = now.tag.slice(1, -1); // of the losses, and of the forecasts if they may be older
      figure.dataset.drawn = String(Number(figure.dataset.drawn ?? 0) + 1);
    } catch (error) {
      let note = canvas.querySelector(".waiting");
      if (!note && !canvas._fullLayout) {
        note = canvas.appendChild(document.createElement("p"));
        note.className = "waiting";
      }
      if (note) note.textContent = `This figure cannot be drawn: ${error.message}`;
    } finally {
      release();
      now.busy = false;
      // the figure may be of an earlier state: request it again until it is current
      const versions = (figure.dataset.version ?? "0").split(".").map(Number);
      const late = seen.has(figure) && !now.playing && Math.min(...versions) < Number(live?.dataset.change ?? 0);
      figure.classList.toggle("behind", Boolean(now.again || late)); // of an earlier state than the records beside it
      if (now.again || late) {
        clearTimeout(now.next);
        now.next = setTimeout(() => draw(figure), now.preview ? 0 : REFRESH);
      }
      now.again = false;
    }
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) { seen.add(target); draw(target); } else seen.delete(target);
    }
  }, { rootMargin: "300px" });

  function prepare(root) {
    for (const figure of root.querySelectorAll("[data-figure]")) {
      watcher.observe(figure);
      for (const option of figure.querySelectorAll("[data-option]")) option.addEventListener("change", () => draw(figure));
      for (const box of figure.querySelectorAll("[data-log]")) {
        box.addEventListener("change", () => { delete figure.dataset.zoomed; if (state.get(figure)?.text) show(figure); });
      }
      for (const button of figure.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(figure, Number(button.dataset.zoom) || "reset"));
    }
  }

  async function refresh() {
    if ("live" in live.dataset) {
      const answer = await fetch(location.href, { cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok) { say(fresh.querySelector(".trouble")?.textContent ?? answer.statusText); return; }
      const places = [...live.querySelectorAll(".log, .scroll")].map((e) => [e.ariaLabel, e.scrollTop, e.scrollLeft]);
      const open = [...live.querySelectorAll("[data-part] details[open]")].map((e) => e.parentElement.textContent);
      const active = live.contains(document.activeElement) ? document.activeElement : null;
      const focused = active && ["data-inplace", "data-run", "href"].filter((name) => active.hasAttribute(name))
        .map((name) => `[${name}="${CSS.escape(active.getAttribute(name))}"]`)[0];
      for (const part of live.querySelectorAll("[data-part]")) {
        const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
        if (next && next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
      }
      for (const [label, top, left] of places) {
        const same = [...live.querySelectorAll(".log, .scroll")].find((e) => e.ariaLabel === label);
        if (same) Object.assign(same, { scrollTop: top, scrollLeft: left });
      }
      for (const part of live.querySelectorAll("[data-part] details")) part.open = open.includes(part.parentElement.textContent);
      if (focused && !document.contains(active)) live.querySelector(focused)?.focus({ preventScroll: true });
      mark();
    }
    for (const figure of seen) soon(figure); // the records do not wait for figures
  }

  // Filters, sorting and pages of a table, without loading the whole page again.
  async function go(address) {
    history.pushState(null, "", address);
    try { await refresh(); } catch { location.assign(address); }
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-inplace]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.href);
  });
  addEventListener("popstate", () => location.reload()); // the form has to follow too

  // Runs that are ticked in the table are highlighted in a figure below it, on all of its pages.
  const compare = document.getElementById("compare"), kept = `runs ${location.host} ${live?.dataset.key}`;
  const selected = new Set(compare ? JSON.parse(sessionStorage.getItem(kept) ?? "[]") : []);
  function mark() {
    if (!compare) return;
    for (const box of live.querySelectorAll("[data-run]")) box.checked = selected.has(box.dataset.run);
    const runs = [...selected].slice(0, 20).join(","), figure = compare.querySelector("[data-figure]");
    const link = compare.querySelector("[data-compare]"), now = `${figure.dataset.figure.split("?")[0]}?runs=${runs}`;
    compare.hidden = !selected.size;
    link.href = `${link.pathname}?runs=${runs}`;
    link.textContent = `Open ${selected.size} in Curves`;
    if (figure.dataset.figure === now) return;
    figure.dataset.figure = now;
    if (selected.size && seen.has(figure)) draw(figure);
  }
  compare?.querySelector("[data-clear]").addEventListener("click", () => { selected.clear(); sessionStorage.removeItem(kept); mark(); });
  document.addEventListener("change", (event) => {
    const run = event.target.dataset?.run;
    if (!run || !compare) return;
    if (event.target.checked) selected.add(run); else selected.delete(run);
    sessionStorage.setItem(kept, JSON.stringify([...selected]));
    mark();
  });

  let due = 0, refreshing = false, missed = false;
  function subscribe() {
    const stream = new EventSource(live.dataset.stream);
    let first = true;
    stream.addEventListener("change", (event) => {
      live.dataset.change = event.data;
      if (first) { first = false; return; }
      missed = document.hidden; // a page that nobody sees costs nothing
      if (!missed) due ||= setTimeout(later, 100);
    });
  }
  document.addEventListener("visibilitychange", () => { if (missed && !document.hidden) { missed = false; later(); } });
  async function later() {
    due = 0;
    if (refreshing) { due = setTimeout(later, 100); return; }
    refreshing = true;
    try { await refresh(); } catch { /* the server is unavailable; the next change retries */ } finally { refreshing = false; }
  }

  // Forms work without this; with it the page is not reloaded and shows the message.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if ("inplace" in form.dataset) {
      event.preventDefault();
      const given = [...new FormData(form)].filter(([, value]) => value !== "");
      go(`${form.getAttribute("action")}?${new URLSearchParams(given)}`);
      return;
    }
    if (!form.querySelector("[data-action]")) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form));
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
      const found = await answer.json();
      say(found.done ?? `Error: ${found.error}`);
      if (found.done && /\/(ban|unban|pin|unpin|stop|resume)$/.test(form.action)) setTimeout(() => location.reload(), 900);
      else if (found.done) later();
    } catch (error) { say(`Error: ${error.message}`); }
  });

  prepare(document);
  mark();
  if (live) subscribe();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of seen) { state.delete(figure); draw(figure); }
  });
})();
