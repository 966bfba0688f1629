// Reads values off a chart: data attributes hold the ends of the axes, so pixels can be converted to values.
(() => {
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
  const BOX = 1000;

  const nearest = (points, x) => {
    let best = points[0];
    for (const point of points) if (Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;
    return best;
  };

  const read = (chart, clientX) => {
    // The drawing is scaled: its matrix converts pixels to its own units.
    const inner = chart.querySelector(".curves").getScreenCTM();
    const x = (clientX - inner.e) / inner.a;
    if (x < -20 || x > BOX + 20) return clear(chart);
    const { x0, x1, y0, y1, unit } = chart.dataset;
    const found = [...chart.querySelectorAll(".line")].map((line) => nearest([...line.points], x));
    if (!found.length) return;
    const at = Number(x0) + (found[0].x / BOX) * (x1 - x0);
    const isLog = chart.dataset.scale === "log", low = isLog ? Math.log10(y0) : Number(y0), high = isLog ? Math.log10(y1) : Number(y1);
    const values = found.map((point) => high - (point.y / BOX) * (high - low)).map((value) => (isLog ? 10 ** value : value));
    const where = chart.dataset.x === "step" ? `step ${Math.round(at).toLocaleString("en")}` : time(at);
    const shown = values.length > 3 ? [Math.min(...values), Math.max(...values)].map(units[unit]).join(" to ") : values.map(units[unit]).join(" · ");
    const out = chart.parentNode.querySelector(".read-out");
    out.textContent = `${shown} at ${where}`;
    out.classList.add("hover");
    mark(chart, found[0].x);
  };

  const mark = (chart, x) => {
    let line = chart.querySelector(".cursor");
    if (!line) {
      line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      line.setAttribute("class", "cursor");
      line.setAttribute("y2", "100%");
      chart.append(line);
    }
    for (const end of ["x1", "x2"]) line.setAttribute(end, `${x / 10}%`);
  };

  const clear = (chart) => {
    chart.querySelector(".cursor")?.remove();
    const out = chart.parentNode.querySelector(".read-out");
    out.textContent = out.dataset.now;
    out.classList.remove("hover");
  };

  // Dragging across a chart zooms all of them: the form above them takes what was chosen, and a double click empties it.
  const form = () => document.getElementById("chart-form");
  const zoom = (text) => { form().elements.zoom.value = text; form().requestSubmit(); };
  const share = (chart, clientX) => {
    const inner = chart.querySelector(".curves").getScreenCTM();
    return Math.min(1, Math.max(0, (clientX - inner.e) / inner.a / BOX));
  };
  let drag = null;
  document.body.addEventListener("pointerdown", (event) => {
    const chart = event.target.closest?.(".chart[data-x]");
    if (!chart || event.button || event.pointerType === "touch") return;
    event.preventDefault();
    drag = { chart, from: share(chart, event.clientX) };
  });
  document.body.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.to = share(drag.chart, event.clientX);
    let area = drag.chart.querySelector(".zoom-area");
    if (!area) {
      area = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      area.setAttribute("class", "zoom-area");
      area.setAttribute("height", "100%");
      drag.chart.append(area);
    }
    area.setAttribute("x", `${100 * Math.min(drag.from, drag.to)}%`);
    area.setAttribute("width", `${100 * Math.abs(drag.to - drag.from)}%`);
  });
  document.addEventListener("pointerup", () => {
    const done = drag;
    drag = null;
    if (!done) return;
    done.chart.querySelector(".zoom-area")?.remove();
    if (done.to === undefined || Math.abs(done.to - done.from) < 0.02) return;
    const x0 = Number(done.chart.dataset.x0), x1 = Number(done.chart.dataset.x1);
    const [low, high] = [done.from, done.to].sort((a, b) => a - b).map((part) => x0 + part * (x1 - x0));
    zoom(done.chart.dataset.x === "step" ? `${Math.floor(low)}-${Math.ceil(high)}` : `${Math.floor(low)}s-${Math.ceil(high)}s`);
  });
  document.body.addEventListener("dblclick", (event) => {
    if (event.target.closest?.(".chart[data-x]") && form().elements.zoom.value) zoom("");
  });

  let last = null, pointer = null;
  const point = (target) => {
    const chart = target?.closest?.(".chart-box")?.querySelector(".chart[data-x]");
    if (last && last !== chart && last.isConnected) clear(last);
    last = chart;
    if (chart) read(chart, pointer.clientX);
  };
  document.body.addEventListener("pointermove", (event) => { pointer = event; point(event.target); });
  // A refresh may have changed the chart under the pointer: show the reading again at the same place.
  document.addEventListener("htmx:after:swap", () => {
    if (last) point(document.elementFromPoint(pointer.clientX, pointer.clientY));
  });
})();
