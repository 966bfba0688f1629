// Charts that answer to the pointer: uPlot draws again what the server drew as SVG, which stays in the page as their source
// and for screen readers. The SVG's data attributes hold the ends of its axes; its points lie in a box of 1000 x 1000.
(() => {
  const BOX = 1000, LEFT = 54, RIGHT = 8, TOP = 12, BOTTOM = 26;
  const number = (value) => (Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : Number(value.toPrecision(4)).toString());
  const bytes = (value) => {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (value < 1000) return `${value >= 10 || unit === "B" ? Math.round(value) : value.toFixed(1)} ${unit}`;
      value /= 1024;
    }
    return `${value.toFixed(1)} TiB`;
  };
  const units = { number, bytes, share: (value) => `${Math.round(value * 100)} %`, cores: (value) => String(Number(value.toPrecision(3))) };
  const time = (seconds) => {
    const whole = Math.round(seconds);
    return whole < 60 ? `${whole} s` : whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  };

  // -- from the server's drawing to uPlot's data

  const axes = ({ x0, x1, y0, y1, scale }) => {
    const isLog = scale === "log", low = isLog ? Math.log10(y0) : Number(y0), high = isLog ? Math.log10(y1) : Number(y1);
    const up = (share) => { const value = low + share * (high - low); return isLog ? 10 ** value : value; };
    return { isLog, across: (share) => Number(x0) + share * (x1 - x0), up };
  };

  const pairs = (svg, shape) => {
    const { across, up } = axes(svg.dataset);
    return [...shape.points].map((point) => [across(point.x / BOX), up(1 - point.y / BOX)]);
  };

  // uPlot wants rising values of x, each of them once.
  const table = (points) => {
    const rows = [...new Map(points)].sort((a, b) => a[0] - b[0]);
    return [rows.map((row) => row[0]), rows.map((row) => row[1])];
  };

  // Computed each time it is drawn: the theme may have changed, and the element may be another one after an update.
  const style = (svg, shape, index) => getComputedStyle(svg.querySelectorAll(shape)[index] ?? svg);

  const series = (svg) => {
    const tables = [], made = [], bands = [], lines = [];
    [...svg.querySelectorAll(".band-area")].forEach((area, index) => {
      const points = pairs(svg, area), half = points.length / 2, first = tables.length + 1;
      tables.push(table(points.slice(0, half)), table(points.slice(half)));
      made.push(...[0, 1].map(() => ({ width: 0, points: { show: false }, spanGaps: true })));
      const fill = () => { const found = style(svg, ".band-area", index); return translucent(found.fill, found.opacity); };
      bands.push({ series: [first + 1, first], fill });
    });
    [...svg.querySelectorAll("polyline")].forEach((line, index) => {
      const look = () => style(svg, "polyline", index), { strokeWidth, strokeDasharray } = look();
      const dash = strokeDasharray === "none" ? undefined : strokeDasharray.split(/[ ,]+/).map(parseFloat);
      tables.push(table(pairs(svg, line)));
      const stroke = () => { const found = look(); return translucent(found.stroke, found.opacity); };
      const points = { show: line.points.length === 1, size: 6, fill: stroke };
      if (line.matches(".line")) lines.push(tables.length);
      made.push({ width: parseFloat(strokeWidth), stroke, dash, spanGaps: true, points });
    });
    return { data: uPlot.join(tables), series: [{}, ...made], bands, lines };
  };

  const translucent = (rgb, opacity) => rgb.replace("rgb(", "rgba(").replace(")", `, ${opacity})`);

  // The server chose the ticks and their words.
  const ticks = (svg, kind, read) => [...svg.querySelectorAll(`text.${kind}`)].map((text) => ({ at: read(text), word: text.textContent })).sort((a, b) => a.at - b.at);

  // Where a value is NaN there is no point: a mark says so, as in the server's drawing.
  const marks = (plot, svg) => {
    const { across } = axes(svg.dataset), { ctx, bbox } = plot, ratio = devicePixelRatio;
    ctx.save();
    for (const mark of svg.querySelectorAll("line.nan")) {
      const x = Math.round(plot.valToPos(across(parseFloat(mark.getAttribute("x1")) / 100), "x", true));
      const isRight = x > bbox.left + 0.8 * bbox.width;
      ctx.strokeStyle = ctx.fillStyle = getComputedStyle(mark).stroke;
      ctx.lineWidth = ratio;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.font = `${10.5 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = isRight ? "right" : "left";
      ctx.fillText("NaN", x + (isRight ? -4 : 4) * ratio, bbox.top + 9 * ratio);
    }
    ctx.restore();
  };

  const isSeen = (type) => type === "mousemove" || type === "mouseleave"; // of other charts: not who drags there
  const options = (svg, box, lines) => {
    const { isLog, across, up } = axes(svg.dataset);
    const xs = ticks(svg, "across", (text) => across(parseFloat(text.getAttribute("x")) / 100));
    const ys = ticks(svg, "up", (text) => up(1 - parseFloat(text.getAttribute("y")) / 100));
    const axis = (found, more) => ({
      splits: () => found.map((tick) => tick.at), values: () => found.map((tick) => tick.word), filter: (_, splits) => splits,
      stroke: () => style(svg, "text", 0).fill, font: "10.5px system-ui, sans-serif", ticks: { show: false }, ...more,
    });
    const grid = { stroke: () => style(svg, ".grid", 0).stroke, width: 1 };
    return {
      width: box.clientWidth, height: svg.clientHeight + TOP + BOTTOM, padding: [TOP, RIGHT, 0, 0], legend: { show: false },
      scales: {
        x: { time: false, range: () => [across(0), across(1)] },
        y: { distr: isLog ? 3 : 1, range: () => [up(0), up(1)] },
      },
      axes: [axis(xs, { size: BOTTOM, gap: 6, grid: { show: false } }), axis(ys, { size: LEFT, gap: 8, grid })],
      cursor: {
        y: false, points: { show: false }, sync: { key: svg.dataset.x, setSeries: false, filters: { pub: isSeen } }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { if (form().elements.zoom.value) zoom(""); } },
      },
      hooks: { draw: [(plot) => marks(plot, svg)], setCursor: [(plot) => read(plot, svg, lines)], setSelect: [(plot) => choose(plot, svg)] },
    };
  };

  // -- what the pointer does

  const nearest = (plot, values, at) => {
    const xs = plot.data[0];
    let best = null;
    values.forEach((value, index) => {
      if (value !== null && value !== undefined && (best === null || Math.abs(xs[index] - at) < Math.abs(xs[best] - at))) best = index;
    });
    return best;
  };

  const read = (plot, svg, lines) => {
    const out = svg.parentNode?.querySelector(".read-out"), left = plot.cursor.left;
    if (!out) return;
    out.classList.toggle("hover", left >= 0);
    if (left < 0) { out.textContent = out.dataset.now; return; }
    const at = plot.posToVal(left, "x");
    const found = lines.map((line) => [line, nearest(plot, plot.data[line], at)]).filter(([, index]) => index !== null);
    if (!found.length) return;
    const values = found.map(([line, index]) => plot.data[line][index]), write = units[svg.dataset.unit];
    const shown = values.length > 3 ? [...new Set([Math.min(...values), Math.max(...values)].map(write))].join(" to ") : values.map(write).join(" · ");
    const x = plot.data[0][found[0][1]];
    out.textContent = `${shown} at ${svg.dataset.x === "step" ? `step ${Math.round(x).toLocaleString("en")}` : time(x)}`;
  };

  // Dragging across a chart zooms all of them: the form above them takes what was chosen, and a double click empties it.
  const form = () => document.getElementById("chart-form");
  const zoom = (text) => { form().elements.zoom.value = text; form().requestSubmit(); };
  const choose = (plot, svg) => {
    const { left, width } = plot.select;
    if (!width) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width < 0.02 * plot.over.clientWidth) return;
    const [low, high] = [left, left + width].map((at) => plot.posToVal(at, "x"));
    zoom(svg.dataset.x === "step" ? `${Math.max(0, Math.floor(low))}-${Math.ceil(high)}` : `${Math.max(0, Math.floor(low))}s-${Math.ceil(high)}s`);
  };

  // -- keeping up with the page

  const drawn = new Map(); // a chart's element -> its plot, and the drawing it was made from
  const draw = (box) => {
    const svg = box.parentNode.querySelector("svg.chart"), before = drawn.get(box);
    if (before?.svg === svg && before.source.isEqualNode(svg)) {
      if (before.plot.cursor.left >= 0) read(before.plot, svg, before.lines); // the update wrote the newest value there
      return;
    }
    const { left, top } = before?.plot.cursor ?? { left: -10, top: -10 };
    before?.plot.destroy();
    drawn.delete(box);
    if (!svg.dataset.x) return;
    const made = series(svg);
    const plot = new uPlot({ ...options(svg, box, made.lines), series: made.series, bands: made.bands }, made.data, box);
    drawn.set(box, { plot, svg, source: svg.cloneNode(true), lines: made.lines });
    sizes.observe(box);
    if (left >= 0) plot.setCursor({ left, top });
  };

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const one = drawn.get(target);
      if (one && target.clientWidth && one.plot.width !== target.clientWidth) one.plot.setSize({ width: target.clientWidth, height: one.plot.height });
    }
  });

  // While a chart is dragged all stay as they are: what is chosen there was chosen on what is seen.
  let isDragged = false;
  document.addEventListener("mousedown", ({ target }) => { isDragged = Boolean(target.closest?.(".plot")); }, true);
  addEventListener("mouseup", () => { if (isDragged) { isDragged = false; drawAll(); } }); // after uPlot's, which is the document's

  const drawAll = () => {
    if (isDragged) return;
    for (const [box, { plot }] of drawn) if (!box.isConnected) { sizes.unobserve(box); plot.destroy(); drawn.delete(box); }
    for (const box of document.querySelectorAll(".plot")) draw(box);
  };
  const repaint = () => { for (const { plot } of drawn.values()) plot.redraw(false); };

  drawAll();
  document.addEventListener("htmx:after:swap", drawAll);
  new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
})();
