// Draws figures when they become visible, and updates the page on server-sent events. The only library is plotly.
"use strict";
(() => {
  const REFRESH = 2000; // milliseconds between two updates of a figure
  const live = document.getElementById("live");
  const message = document.getElementById("message");
  const seen = new Set(); // figures in view
  const state = new WeakMap(); // figure -> { tag, busy, again, drawn }
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
    for (const option of figure.querySelectorAll("[data-option]")) at.searchParams.set(option.dataset.option, option.value);
    return at;
  }

  function arranged(data, layout, narrow) {
    const clear = "rgba(0,0,0,0)";
    Object.assign(layout, { paper_bgcolor: clear, plot_bgcolor: clear, autosize: true });
    delete layout.title;
    delete layout.width;
    delete layout.height;
    const panels = Object.keys(layout).some((key) => /^xaxis\d/.test(key));
    layout.margin = { l: narrow ? 48 : 66, r: 14, t: panels ? 34 : 12, b: layout.scene ? 10 : 56 };
    layout.font.size = narrow ? 12 : 13;
    layout.legend = { orientation: "h", x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container", font: { size: 12 } };
    const named = data.filter((trace) => trace.showlegend !== false).length > 1;
    layout.showlegend = named && !layout.scene && !panels;
    if (layout.showlegend) layout.margin.b = narrow ? 96 : 78; // two rows on a narrow page
    for (const [key, axis] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      axis.tickfont = { size: axis.type === "log" ? 10 : 12 }; // plotly enlarges powers of ten by a quarter
      if (axis.title) axis.title.font = { size: 13 };
    }
    if (layout.scene) for (const axis of ["xaxis", "yaxis", "zaxis"]) layout.scene[axis].backgroundcolor = clear;
    return layout;
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

  async function draw(figure) {
    const now = state.get(figure) ?? { tag: "", busy: false, again: false };
    state.set(figure, now);
    if (now.busy) { now.again = true; return; }
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
      const { data, layout } = recoloured(text);
      const words = layout.meta ?? {};
      const decoded = (html) => new DOMParser().parseFromString(html ?? "", "text/html").body.textContent;
      figure.querySelector("figcaption h3").textContent = decoded(words.title);
      const soon = preview ? "computing forecasts; " : "";
      figure.querySelector("figcaption p").textContent = soon + decoded(words.subtitle);
      canvas.setAttribute("aria-label", `${decoded(words.title)}: ${decoded(words.subtitle)}`);
      canvas.querySelector(".waiting")?.remove();
      const rotated = canvas._fullLayout?.scene?.camera; // keep the viewpoint
      if (rotated && layout.scene) layout.scene.camera = rotated;
      const options = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" };
      await Plotly.react(canvas, data, arranged(data, layout, canvas.clientWidth < 480), options);
      Object.assign(now, { tag: answer.headers.get("ETag") ?? "-", at: at.href, preview: preview });
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
      const late = seen.has(figure) && Number(now.tag.slice(1, -1)) < Number(live?.dataset.change ?? 0);
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
    }
  }

  async function refresh() {
    if (live.dataset.live) {
      const answer = await fetch(live.dataset.live, { cache: "no-store" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const places = [...live.querySelectorAll(".log, .scroll")].map((e) => [e.ariaLabel, e.scrollTop, e.scrollLeft]);
      const open = live.querySelector("details.events")?.open;
      const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      for (const part of live.querySelectorAll("[data-part]")) {
        const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
        if (next) part.replaceChildren(...next.childNodes);
      }
      for (const [label, top, left] of places) {
        const same = [...live.querySelectorAll(".log, .scroll")].find((e) => e.ariaLabel === label);
        if (same) Object.assign(same, { scrollTop: top, scrollLeft: left });
      }
      if (open) live.querySelector("details.events")?.setAttribute("open", "");
      if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
    for (const figure of seen) await draw(figure);
  }

  let due = 0, refreshing = false;
  function subscribe() {
    const stream = new EventSource(live.dataset.stream);
    let first = true;
    stream.addEventListener("change", (event) => {
      live.dataset.change = event.data;
      if (first) { first = false; return; }
      if (due || refreshing) { due ||= setTimeout(later, REFRESH); return; }
      due = setTimeout(later, 100);
    });
  }
  async function later() {
    due = 0;
    if (refreshing) { due = setTimeout(later, REFRESH); return; }
    refreshing = true;
    try { await refresh(); } catch { /* the server is unavailable; the next change retries */ } finally { refreshing = false; }
  }

  // Forms work without this; with it the page is not reloaded and shows the message.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
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
  if (live) subscribe();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of seen) { state.delete(figure); draw(figure); }
  });
})();
