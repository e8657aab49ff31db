"use strict";
// Sorting, theme and plots of the report. Reads the figures from the page; asks nothing of the network.
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);

  // Tables: a click on a head sorts by data-key, numbers as numbers, gaps last either way.
  const keyOf = (row, column) => {
    const key = row.cells[column].dataset.key;
    if (key === undefined) return null;
    const number = Number(key);
    return key.trim() === "" || Number.isNaN(number) ? key : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  document.querySelectorAll("table").forEach((table) => {
    const heads = [...table.querySelectorAll("thead tr:last-child th")];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
      rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : direction * compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    }));
  });
  document.querySelectorAll("label.gaps input").forEach((box) => {
    const table = box.closest(".table");
    const show = () => table.classList.toggle("hide-gaps", !box.checked);
    box.addEventListener("change", show);
    show();
  });

  // Theme: as the system says, until the reader chooses.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("aaren-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = document.querySelector("button.theme");
  const label = () => { button.textContent = isDark() ? "light" : "dark"; };
  if (stored()) root.dataset.theme = stored();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("aaren-theme", root.dataset.theme); } catch { /* a page from a file may not store */ }
    redraw();
  });
  dark.addEventListener("change", () => redraw());

  // Plots: names like "@aaren" become the theme's colours; a plot is drawn when it comes into view.
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name.slice(1)).trim();
  const painted = (value) => {
    if (typeof value === "string") return value.startsWith("@") ? colour(value) : value;
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, painted(item)]));
    }
    return value;
  };
  const themed = (layout) => {
    const base = painted(layout);
    const narrow = window.innerWidth < 640;
    const result = {
      height: 340,
      margin: { l: narrow ? 48 : 60, r: 14, t: 42, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("@ink") },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      hovermode: "closest",
      hoverlabel: { bgcolor: colour("@soft"), bordercolor: colour("@line"), font: { color: colour("@ink") } },
      ...base,
    };
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(base).filter((key) => /^[xy]axis\d*$/.test(key))]);
    axes.forEach((name) => {
      result[name] = {
        gridcolor: colour("@line"), linecolor: colour("@line"), zerolinecolor: colour("@line"),
        automargin: true, ...base[name],
      };
    });
    return result;
  };
  const drawn = new Set();
  const draw = (canvas) => {
    const spec = figures[canvas.dataset.figure];
    const chooser = canvas.parentElement.querySelector("select");
    const view = spec.views[chooser ? Number(chooser.value) : 0];
    drawn.add(canvas);
    canvas.style.minHeight = (view.layout.height || 340) + "px";
    Plotly.react(canvas, painted(view.data), themed(view.layout), { responsive: true, displayModeBar: false });
  };
  const redraw = () => { label(); drawn.forEach(draw); };
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }), { rootMargin: "300px" });
  document.querySelectorAll(".canvas").forEach((canvas) => {
    const chooser = canvas.parentElement.querySelector("select");
    if (chooser) chooser.addEventListener("change", () => draw(canvas));
    seen.observe(canvas);
  });
  window.addEventListener("beforeprint", () => document.querySelectorAll(".canvas").forEach(draw));
  label();
})();
