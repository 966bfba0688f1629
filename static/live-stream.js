// The stream of hints, kept open. As a shared worker it holds one for all tabs of this browser; a page of a browser without
// shared workers loads the same file and has a stream of its own.
const REOPEN_MILLISECONDS = 10_000;
const SILENT_MILLISECONDS = 50_000; // the server sends a beat every 15 s; a connection may die without a word

// Calls `tell` with {kind: "sync"}, {kind: "hints", hints} and {kind: "down"}.
const liveStream = (url, tell) => {
  let source = null, heardAt = 0, isOpen = false, again = null;

  const hear = (message) => { heardAt = Date.now(); if (message) tell(message); };
  const lose = (wait) => {
    isOpen = false;
    tell({ kind: "down" });
    // The browser reconnects after a broken connection, but not after a response such as 503, nor when signed out.
    if (wait === null) return;
    source.close();
    clearTimeout(again);
    again = setTimeout(open, wait);
  };
  const open = () => {
    heardAt = Date.now();
    source = new EventSource(url);
    source.addEventListener("sync", () => { isOpen = true; hear({ kind: "sync" }); });
    source.addEventListener("hints", (event) => hear({ kind: "hints", hints: JSON.parse(event.data) }));
    source.addEventListener("beat", () => hear());
    source.onerror = () => { heardAt = Date.now(); lose(source.readyState === EventSource.CLOSED ? REOPEN_MILLISECONDS : null); };
  };
  const watch = setInterval(() => { if (Date.now() - heardAt > SILENT_MILLISECONDS) lose(0); }, REOPEN_MILLISECONDS);

  open();
  return { isOpen: () => isOpen, leave: () => { clearInterval(watch); clearTimeout(again); source.close(); } };
};

// A tab joins while it is visible; without tabs there is no stream.
if ("SharedWorkerGlobalScope" in self) {
  const ports = new Set();
  let stream = null;

  const tell = (message) => { for (const port of ports) port.postMessage(message); };

  const drop = (port) => {
    ports.delete(port);
    if (ports.size || !stream) return;
    stream.leave();
    stream = null;
  };

  self.onconnect = (event) => {
    const port = event.ports[0];
    port.onmessage = ({ data }) => {
      if (data === "leave") return drop(port);
      ports.add(port);
      if (!stream) stream = liveStream(data.join, tell);
      // The page was rendered before it joined, so it missed the hints between the two.
      else if (stream.isOpen()) port.postMessage({ kind: "sync" });
    };
    port.start();
  };
}
