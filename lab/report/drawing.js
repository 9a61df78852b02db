/* Draws the charts of a report from the JSON in the page, in the colours of the page's style: lines with uPlot,
   heat maps on a canvas. */
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll(".chart")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  /* A line over which others run is wider than they are, so that it is seen on both sides of them. */
  const LINES = 8;  /* colours; from the ninth line on they repeat */
  const FONT = "12px system-ui, sans-serif";
  const NONE = "\u2013";
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const widthOf = (place) => Math.max(200, place.clientWidth);
  const written = (number, chart) => number == null ? NONE :
    chart.digits == null ? String(+number.toPrecision(4)) : number.toFixed(chart.digits) + chart.unit;

  /* ---------------------------------------------------------------- lines */

  function lines(place, chart) {
    const size = (width) => ({width, height: Math.round(Math.min(360, Math.max(220, width * 0.5)))});
    const [options, data] = ofLines(chart);
    const plot = new uPlot({...size(widthOf(place)), ...options}, data, place);
    return {width: () => plot.width, resize: (width) => plot.setSize(size(width)), remove: () => plot.destroy()};
  }

  function ofLines(chart) {
    const ink = colour("--ink"), rule = colour("--rule");
    const value = (plot, number) => written(number, chart);
    const axis = {stroke: ink, font: FONT, grid: {stroke: rule, width: 1}, ticks: {stroke: rule, width: 1}};
    const series = [{label: chart.x.split(" ")[0], value: (plot, number) => number == null ? NONE : String(+number.toFixed(2))}];
    const data = [chart.points], bands = [];
    for (const line of chart.lines) {
      const shade = colour("--line-" + line.colour % LINES), dash = line.dash;
      series.push({label: line.name, stroke: shade, width: 2 + 3 * line.above, dash, spanGaps: true, value,
        points: {show: chart.points.length < 40, size: 5, fill: shade, stroke: shade}});
      data.push(line.mean);
      if (line.low) {
        const edge = {class: "edge", stroke: "transparent", width: 0, spanGaps: true, points: {show: false}, value};
        series.push({...edge, label: line.name + ", highest"}, {...edge, label: line.name + ", lowest"});
        bands.push({series: [series.length - 2, series.length - 1], fill: shade + "2e"});
        data.push(line.high, line.low);
      }
    }
    const marks = (plot) => {
      const {left, top, width, height} = plot.bbox;
      plot.ctx.save();
      plot.ctx.strokeStyle = ink;
      plot.ctx.setLineDash([2, 4]);
      for (const mark of chart.marks) {
        const x = plot.valToPos(mark, "x", true);
        if (x < left || x > left + width) continue;
        plot.ctx.beginPath();
        plot.ctx.moveTo(x, top);
        plot.ctx.lineTo(x, top + height);
        plot.ctx.stroke();
      }
      plot.ctx.restore();
    };
    return [{series, bands, scales: {x: {time: false}, y: {distr: chart.log ? 3 : 1}}, legend: {live: true},
      cursor: {points: {show: (plot, number) => series[number].class !== "edge"}}, hooks: {draw: [marks]},
      axes: [{...axis, label: chart.x, labelFont: FONT, labelSize: 22}, {...axis, size: 58}]}, data];
  }

  /* ---------------------------------------------------------------- heat maps */

  const LINE = 16;  /* height of a line of text */

  function heat(place, chart) {
    const canvas = document.createElement("canvas"), reading = document.createElement("p");
    canvas.className = "heat";
    reading.className = "reading";
    place.append(canvas, reading);
    let box;
    const rest = () => {
      reading.textContent = `light: ${written(chart.low, chart)}, strong: ${written(chart.high, chart)}`;
    };
    const read = (event) => {
      const row = Math.floor((event.offsetY - box.top) / box.height * chart.rows.length);
      const column = Math.floor((event.offsetX - box.left) / box.width * chart.columns.length);
      const value = chart.values[row]?.[column];
      if (value === undefined) rest();
      else reading.textContent =
        `${chart.x} ${chart.columns[column]}, ${chart.y} ${chart.rows[row]}: ${written(value, chart)}`;
    };
    canvas.addEventListener("pointermove", read);
    canvas.addEventListener("pointerdown", read);
    canvas.addEventListener("pointerleave", rest);
    const resize = (width) => { box = paint(canvas, chart, width); };
    resize(widthOf(place));
    rest();
    return {width: () => box.whole, resize, remove: () => { canvas.remove(); reading.remove(); }};
  }

  function paint(canvas, chart, width) {
    const rows = chart.rows.length, columns = chart.columns.length, pen = canvas.getContext("2d");
    const height = Math.round(Math.min(360, Math.max(60, rows * LINE)));
    pen.font = FONT;
    const widest = Math.max(...chart.rows.map((name) => pen.measureText(name).width));
    const left = Math.ceil(Math.min(widest, width * 0.3)) + LINE + 12, top = 4;
    const box = {left, top, width: width - left - 8, height, whole: width};
    const whole = top + height + 2 * LINE + 8;
    canvas.style.width = width + "px";
    canvas.style.height = whole + "px";
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(whole * devicePixelRatio);
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.font = FONT;
    const shade = between(colour("--pale"), colour("--strong"));
    const span = chart.high - chart.low;
    const edge = (number, count, start, length) => Math.round(start + number * length / count);
    chart.values.forEach((line, row) => line.forEach((value, column) => {
      if (value == null) return;
      const x = edge(column, columns, left, box.width), y = edge(row, rows, top, height);
      pen.fillStyle = shade(span > 0 ? (value - chart.low) / span : 0.5);
      pen.fillRect(x, y, edge(column + 1, columns, left, box.width) - x, edge(row + 1, rows, top, height) - y);
    }));
    pen.strokeStyle = colour("--rule");
    pen.strokeRect(left - 0.5, top - 0.5, box.width + 1, height + 1);
    labels(pen, chart, box);
    return box;
  }

  function labels(pen, chart, box) {
    pen.fillStyle = colour("--ink");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const rows = chart.rows.length, columns = chart.columns.length;
    const below = Math.ceil(rows * LINE / box.height / 1.01);  /* every so many rows have a label */
    for (let row = 0; row < rows; row += below) {
      pen.fillText(chart.rows[row], box.left - 6, box.top + (row + 0.5) * box.height / rows, box.left - LINE - 10);
    }
    pen.textAlign = "center";
    const short = chart.columns.map((name) => name.split(" ")[0]);
    const widest = Math.max(...short.map((name) => pen.measureText(name).width)) + 8;
    const beside = Math.max(1, Math.ceil(columns * widest / box.width));
    for (let column = 0; column < columns; column += beside) {
      pen.fillText(short[column], box.left + (column + 0.5) * box.width / columns, box.top + box.height + LINE * 0.7);
    }
    pen.fillText(chart.x, box.left + box.width / 2, box.top + box.height + LINE * 1.7);
    pen.translate(LINE / 2, box.top + box.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(chart.y, 0, 0);
  }

  /* The colour at a share of the way from one colour, as #rrggbb, to another. */
  function between(from, to) {
    const parts = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
    const [a, b] = [parts(from), parts(to)];
    return (share) => `rgb(${a.map((value, place) => Math.round(value + (b[place] - value) * share)).join(",")})`;
  }

  /* ---------------------------------------------------------------- all */

  function draw(place) {
    drawn.get(place)?.remove();
    const chart = charts[Number(place.dataset.chart)];
    drawn.set(place, chart.kind === "heat" ? heat(place, chart) : lines(place, chart));
  }

  const resized = new ResizeObserver((entries) => {
    for (const {target} of entries) {
      const plot = drawn.get(target);
      if (plot && target.clientWidth && plot.width() !== widthOf(target)) plot.resize(widthOf(target));
    }
  });
  for (const place of places) {
    draw(place);
    resized.observe(place);
  }
  dark.addEventListener("change", () => places.forEach(draw));
})();
