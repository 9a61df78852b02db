/* Draws the charts of a report with uPlot, from the JSON in the page, in the colours of the page's style. */
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll(".chart")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const FONT = "12px system-ui, sans-serif";
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const size = (place) => {
    const width = Math.max(200, place.clientWidth);
    return {width, height: Math.round(Math.min(360, Math.max(220, width * 0.5)))};
  };

  function options(place, chart) {
    const ink = colour("--ink"), rule = colour("--rule");
    const value = (plot, number) => number == null ? "–" : number.toFixed(chart.digits) + chart.unit;
    const axis = {stroke: ink, font: FONT, grid: {stroke: rule, width: 1}, ticks: {stroke: rule, width: 1}};
    const series = [{label: chart.x.split(" ")[0], value: (plot, number) => number == null ? "–" : String(+number.toFixed(2))}];
    const data = [chart.points], bands = [];
    for (const line of chart.lines) {
      const shade = colour("--line-" + line.colour % 8);
      const dash = DASHES[Math.floor(line.colour / 2) % DASHES.length];
      series.push({label: line.name, stroke: shade, width: 2, dash, spanGaps: true, value,
        points: {show: chart.points.length < 40, size: 5, fill: shade, stroke: shade}});
      data.push(line.mean);
      if (line.low) {
        const edge = {class: "edge", stroke: "transparent", width: 0, spanGaps: true, points: {show: false}, value};
        series.push({...edge, label: line.name + ", highest"}, {...edge, label: line.name + ", lowest"});
        bands.push({series: [series.length - 2, series.length - 1], fill: shade + "2e"});
        data.push(line.high, line.low);
      }
    }
    return [{...size(place), series, bands, scales: {x: {time: false}}, legend: {live: true},
      cursor: {points: {show: (plot, number) => series[number].class !== "edge"}},
      axes: [{...axis, label: chart.x, labelFont: FONT, labelSize: 22}, {...axis, size: 58}]}, data];
  }

  function draw(place) {
    const old = drawn.get(place);
    if (old) old.destroy();
    const [given, data] = options(place, charts[Number(place.dataset.chart)]);
    drawn.set(place, new uPlot(given, data, place));
  }

  const resized = new ResizeObserver((entries) => {
    for (const {target} of entries) {
      const plot = drawn.get(target);
      if (plot && plot.width !== size(target).width) plot.setSize(size(target));
    }
  });
  for (const place of places) {
    draw(place);
    resized.observe(place);
  }
  dark.addEventListener("change", () => places.forEach(draw));
})();
