// One stream for all tabs of this browser. A tab joins while it is visible; without tabs there is no stream.
const ports = new Set();
const REOPEN_MILLISECONDS = 10_000;
let source = null;
let isOpen = false;

const tell = (message) => { for (const port of ports) port.postMessage(message); };

const open = (url) => {
  source = new EventSource(url);
  source.addEventListener("sync", () => { isOpen = true; tell({ kind: "sync" }); });
  source.addEventListener("hints", (event) => tell({ kind: "hints", hints: JSON.parse(event.data) }));
  source.onerror = () => {
    isOpen = false;
    tell({ kind: "down" });
    // The browser reconnects after a broken connection, but not after a response such as 503, nor when signed out.
    if (source.readyState !== EventSource.CLOSED) return;
    source = null;
    setTimeout(() => { if (ports.size && !source) open(url); }, REOPEN_MILLISECONDS);
  };
};

const drop = (port) => {
  ports.delete(port);
  if (ports.size || !source) return;
  source.close();
  source = null;
  isOpen = false;
};

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data === "leave") return drop(port);
    ports.add(port);
    if (!source) open(data.join);
    // The page was rendered before it joined, so it missed the hints between the two.
    else if (isOpen) port.postMessage({ kind: "sync" });
  };
  port.start();
};
