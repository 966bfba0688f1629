// Finds the rank under the pointer in a map of ranks (jobs/web/rank_map.py draws it), and moves through it by keys.
(() => {
  const places = new Map(); // where the reader is in each map: an update in place resets what is in the page
  const SVG = "http://www.w3.org/2000/svg";
  const numbers = (map) => Object.fromEntries(["first", "count", "per", "columns", "across", "unit", "gap"].map((name) => [name, Number(map.dataset[name])]));

  const corner = (map, number) => {
    const { per, columns, across, unit, gap } = numbers(map);
    const tile = Math.floor(number / per), local = number % per;
    const width = columns * unit + gap, height = Math.ceil(per / columns) * unit + gap;
    return [(tile % across) * width + (local % columns) * unit, Math.floor(tile / across) * height + Math.floor(local / columns) * unit];
  };

  // The number of a rank within its map, or null beside all cells.
  const find = (map, event) => {
    const { count, per, columns, across, unit, gap } = numbers(map);
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    const width = columns * unit + gap, height = Math.ceil(per / columns) * unit + gap;
    const right = Math.floor(x / width), down = Math.floor(y / height), column = Math.floor((x - right * width) / unit), row = Math.floor((y - down * height) / unit);
    const local = row * columns + column, number = (down * across + right) * per + local;
    return x < 0 || y < 0 || right >= across || column >= columns || local >= per || number >= count ? null : number;
  };

  const words = (map, number) => {
    const { first, per } = numbers(map);
    return `rank ${first + number} on ${map.dataset.role}-${Math.floor(number / per)}`;
  };

  const point = (map, number) => {
    let at = map.querySelector(".at");
    if (!at) { at = document.createElementNS(SVG, "rect"); at.setAttribute("class", "at"); at.setAttribute("width", 9); at.setAttribute("height", 9); map.append(at); }
    const [x, y] = corner(map, number);
    at.setAttribute("x", x - 1);
    at.setAttribute("y", y - 1);
  };
  const tell = (map, number) => {
    point(map, number);
    places.set(map.id, number);
    document.getElementById("map-tip").textContent = words(map, number);
  };

  const open = (map, number) => {
    document.getElementById("map-rank").value = numbers(map).first + number;
    document.getElementById("map-open").click();
  };

  document.body.addEventListener("pointermove", (event) => {
    const map = event.target.closest?.("svg.map"), number = map && find(map, event);
    if (map && number !== null) tell(map, number);
  });
  document.body.addEventListener("click", (event) => {
    const map = event.target.closest?.("svg.map"), number = map && find(map, event);
    if (map && number !== null) { tell(map, number); open(map, number); }
  });
  document.body.addEventListener("keydown", (event) => {
    const map = event.target.closest?.("svg.map");
    if (!map) return;
    const { count, per, columns, across } = numbers(map), at = places.get(map.id) ?? 0;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: per * across, PageUp: -per * across, Home: -count, End: count }[event.key];
    if (event.key === "Enter") { event.preventDefault(); open(map, at); return; }
    if (!step) return;
    event.preventDefault();
    tell(map, Math.min(count - 1, Math.max(0, at + step)));
  });
  // An update in place takes our own rectangle out of the drawing.
  document.addEventListener("htmx:after:swap", () => {
    for (const map of document.querySelectorAll("svg.map")) if (places.has(map.id) && !map.querySelector(".at")) point(map, places.get(map.id));
  });
})();
