// Turns hints from the server into events on <body> ("job-42-ranks"); elements list the events they need in hx-trigger.
// A shared worker holds one stream for all tabs: browsers allow six connections to a server over HTTP/1.1.
(() => {
  const script = document.currentScript;
  const state = document.getElementById("link-state");
  const inFlight = new Set(); // elements with a request in flight
  const again = new Set(); // events that arrived while an element that needs them had a request in flight

  const wants = (element, name) => (element.getAttribute("hx-trigger") || "").includes(`${name} from:body`);

  const ring = (name) => {
    // The response in flight may be older than this hint and will replace the element: dispatch again after it.
    if ([...inFlight].some((element) => wants(element, name))) again.add(name);
    else document.body.dispatchEvent(new Event(name));
  };

  document.body.addEventListener("htmx:before:request", ({ detail }) => inFlight.add(detail.ctx.sourceElement));
  const settle = ({ detail }) => {
    inFlight.delete(detail.ctx.sourceElement);
    for (const element of inFlight) if (!element.isConnected) inFlight.delete(element);
    const due = [...again];
    again.clear();
    if (due.length) setTimeout(() => due.forEach(ring), 100);
  };
  // On the document: the element may be gone by then.
  document.addEventListener("htmx:finally:request", settle);

  // Least milliseconds between two requests for the same part: nobody reads a chart five times a second, and the server
  // that draws it may share its cores with the training. A log being followed is at most two seconds behind.
  const SYNC_GAP = 2000; // also when hints are lost again and again
  const COMPARE_GAP = 10000;
  const GAPS = { state: 300, logs: 1000, ranks: 2500, metrics: 5000, samples: 30000 };

  // Dispatches at once, then at most once per `gap` milliseconds; the last of several calls always has an effect.
  const rungAt = new Map(), timers = new Map();
  const soon = (name, gap) => {
    if (timers.has(name)) return;
    const wait = Math.max(0, (rungAt.get(name) ?? 0) + gap - Date.now());
    timers.set(name, setTimeout(() => { timers.delete(name); rungAt.set(name, Date.now()); ring(name); }, wait));
  };

  // A stream that ends is reopened within seconds; show the notice only after a longer silence.
  let silence = null;
  const hush = () => { silence ??= setTimeout(() => { state.hidden = false; }, 6000); };
  const speak = () => { clearTimeout(silence); silence = null; state.hidden = true; };

  // Pages poll only where the stream cannot help. While it is away, for everything; and once a minute for what changes by
  // the clock alone, such as a rank that has become silent.
  let isDown = true;
  setInterval(() => { if (isDown && !document.hidden) ring("live-sync"); }, 30_000);
  setInterval(() => { if (!isDown && !document.hidden) ring("live-check"); }, 60_000);

  // Where that look finds the job in another phase than the page shows, the hint was lost with the process that owed it.
  const compare = () => {
    const [shown, found] = ["state", "ranks"].map((id) => document.getElementById(id)?.dataset.phase);
    const isOpen = [...inFlight].some(({ id }) => id === "state" || id === "ranks");
    if (shown && found && shown !== found && !isOpen && !document.hidden) soon("live-sync", COMPARE_GAP);
  };
  // After a swap only: a part whose request failed still shows what it did.
  document.addEventListener("htmx:after:swap", () => setTimeout(compare));

  const hear = ({ kind, hints }) => {
    if (kind === "down") { isDown = true; hush(); }
    if (kind === "sync") { isDown = false; speak(); soon("live-sync", SYNC_GAP); }
    if (kind !== "hints") return;
    for (const [job, what] of hints) soon(`job-${job}-${what}`, GAPS[what] ?? 1000);
    // Lists show many jobs: once a second is enough.
    if (hints.some(([, what]) => what === "state" || what === "ranks")) soon("jobs-changed", 1000);
  };

  let leave = null;
  const viaWorker = () => {
    const worker = new SharedWorker(script.dataset.worker, { name: "muster-live" });
    worker.port.onmessage = (event) => hear(event.data);
    worker.port.start();
    worker.port.postMessage({ join: script.dataset.stream });
    return () => { worker.port.postMessage("leave"); worker.port.close(); };
  };
  const viaOwnStream = () => {
    const { leave } = liveStream(script.dataset.stream, hear);
    return leave;
  };
  const join = () => { leave ??= (window.SharedWorker ? viaWorker : viaOwnStream)(); };
  const part = () => { leave?.(); leave = null; };

  // A hidden tab requests nothing; when shown again it joins, and the first message it receives is "sync".
  const follow = () => (document.hidden ? part() : join());
  document.addEventListener("visibilitychange", follow);
  document.body.addEventListener("htmx:before:request", (event) => {
    if (document.hidden && event.detail.ctx.request.method === "GET") event.preventDefault();
  });
  addEventListener("pagehide", part);
  addEventListener("pageshow", follow);
  follow();
})();
