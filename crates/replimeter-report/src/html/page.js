"use strict";
(function () {
  var root = document.documentElement;
  var figures = JSON.parse(document.getElementById("data").textContent);
  var media = window.matchMedia("(prefers-color-scheme: dark)");

  function dark() {
    var chosen = root.getAttribute("data-theme");
    return chosen ? chosen === "dark" : media.matches;
  }

  // Colours come from the style sheet, so that there is one place for them.
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

  function draw() {
    document.getElementById("theme").setAttribute("aria-pressed", String(dark()));
    figures.forEach(function (figure) {
      Plotly.react(figure.id, figure.data, coloured(figure.layout), { responsive: true, displaylogo: false });
    });
  }

  document.getElementById("theme").addEventListener("click", function () {
    root.setAttribute("data-theme", dark() ? "light" : "dark");
    draw();
  });
  media.addEventListener("change", draw);
  draw();
})();
