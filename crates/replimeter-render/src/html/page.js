"use strict";
(function () {
  var root = document.documentElement;
  var figures = JSON.parse(document.getElementById("data").textContent);
  var media = window.matchMedia("(prefers-color-scheme: dark)");

  function dark() {
    var chosen = root.getAttribute("data-theme");
    return chosen ? chosen === "dark" : media.matches;
  }

  // Colors come from the style sheet, their only definition.
  function coloured(layout) {
    var style = getComputedStyle(root);
    var line = style.getPropertyValue("--line").trim();
    var themed = Object.assign({}, layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: style.getPropertyValue("--fg").trim(), family: "system-ui, sans-serif" }
    });
    ["xaxis", "yaxis", "yaxis2"].forEach(function (axis) {
      if (axis === "yaxis2" && !layout[axis]) { return; }
      themed[axis] = Object.assign({ gridcolor: line, zerolinecolor: line, linecolor: line }, layout[axis]);
    });
    return themed;
  }

  // Lines of the legend above the chart: Plotly gives every entry the width of the longest.
  function legendLines(figure, width) {
    if (figure.data.length < 2 || figure.layout.showlegend === false) { return 0; }
    var longest = figure.data.reduce(function (most, trace) { return Math.max(most, (trace.name || "").length); }, 0);
    var inLine = Math.max(1, Math.floor((width - 100) / (longest * 6.8 + 50)));
    return Math.ceil(figure.data.length / inLine);
  }

  function drawOne(figure, width) {
    var place = document.getElementById(figure.id);
    var wide = width || place.clientWidth || 1000;
    var legend = legendLines(figure, wide) * 20;
    // The plot keeps its height; the legend takes at most half of the chart, or it would scroll.
    var height = Math.max((figure.layout.height || 416) + legend, 2 * legend + 40);
    place.style.height = height + "px";
    var layout = Object.assign({}, coloured(figure.layout), { height: height, autosize: !width });
    if (width) { layout.width = width; }
    Plotly.react(figure.id, figure.data, layout, { responsive: true, displaylogo: false });
  }
  function draw(width) {
    document.getElementById("theme").setAttribute("aria-pressed", String(dark()));
    figures.forEach(function (figure) { drawOne(figure, width); });
  }
  // Visible charts are drawn first, the others one by one, so that the page is readable while they are drawn.
  function drawFrom(index) {
    if (index >= figures.length) { return; }
    // Before printing, all charts are drawn.
    if (chosen === null) { drawOne(figures[index]); }
    setTimeout(drawFrom, 0, index + 1);
  }

  // On paper nothing can be unfolded, and a chart is as wide as the sheet.
  var opened = [];
  var chosen = null;
  function toPaper() {
    if (opened.length || chosen !== null) { return; }
    chosen = root.getAttribute("data-theme") || "";
    root.setAttribute("data-theme", "light");
    document.querySelectorAll("details.values:not([open])").forEach(function (one) { one.open = true; opened.push(one); });
    draw(980);
  }
  function fromPaper() {
    if (chosen === null) { return; }
    if (chosen) { root.setAttribute("data-theme", chosen); } else { root.removeAttribute("data-theme"); }
    opened.forEach(function (one) { one.open = false; });
    opened = [];
    chosen = null;
    draw();
  }
  window.addEventListener("beforeprint", toPaper);
  window.addEventListener("afterprint", fromPaper);
  window.matchMedia("print").addEventListener("change", function (print) { if (print.matches) { toPaper(); } else { fromPaper(); } });

  document.getElementById("theme").addEventListener("click", function () {
    root.setAttribute("data-theme", dark() ? "light" : "dark");
    draw();
  });
  media.addEventListener("change", function () { draw(); });
  document.getElementById("theme").setAttribute("aria-pressed", String(dark()));
  drawFrom(0);
})();
