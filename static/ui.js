// Conveniences: every page works without them.
const body = document.body;

const words = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const minutes = Math.floor(whole / 60), hours = Math.floor(whole / 3600), days = Math.floor(whole / 86400);
  if (minutes < 1) return `${whole} s`;
  if (hours < 1) return `${minutes} min ${two(whole % 60)} s`;
  if (days < 1) return `${hours} h ${two(minutes % 60)} min`;
  return `${days} d ${hours % 24} h`;
};

// Keeps durations counting between two responses of the server.
const tick = () => {
  for (const node of document.querySelectorAll("time[data-since]")) {
    const text = words((Date.now() - Number(node.dataset.since)) / 1000) + node.dataset.suffix;
    if (node.textContent !== text) node.textContent = text;
  }
};
setInterval(() => document.hidden || tick(), 1000);

const reveal = (root) => {
  for (const node of root.querySelectorAll("[data-copy], [data-theme-toggle]")) node.hidden = false;
};
reveal(document);
document.addEventListener("htmx:after:swap", () => reveal(document));

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

body.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent);
    copy.setAttribute("aria-label", "Copied");
    copy.setAttribute("aria-pressed", "true");
    setTimeout(() => { copy.setAttribute("aria-label", "Copy"); copy.removeAttribute("aria-pressed"); }, 1500);
  }
  if (event.target.closest("[data-theme-toggle]")) {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }
  // A click elsewhere closes open menus and dialogs.
  for (const open of document.querySelectorAll("details.menu[open], details.confirm[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.menu[open], details.confirm[open]")) open.open = false;
  }
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    const field = document.querySelector("#q") || document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  }
});

// A second click on "Submit" sends nothing. If it did, the idempotency key in the form would prevent a second job.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-once]");
  if (!form) return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "1";
  for (const button of form.querySelectorAll("button:not([type=button])")) button.classList.add("busy");
});
const release = () => {
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
    for (const button of form.querySelectorAll(".busy")) button.classList.remove("busy");
  }
};
// A form that htmx has sent is answered in place where something in it is wrong: it leads to the first such field.
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  const form = ctx.sourceElement.closest?.("form[data-once]");
  if (!form || ctx.sourceEvent?.type !== "submit" || ctx.hx?.redirect) return;
  release();
  document.getElementById(form.id)?.querySelector('[aria-invalid="true"]')?.focus();
});
addEventListener("pageshow", release);

// htmx keeps the element that a request is to fill. Another answer may have replaced that element meanwhile, and of two
// requests of the user for the same place only the later one counts, whichever is answered first.
const newest = new Map(), askedAs = new WeakMap();
const isOfUser = ({ sourceEvent, sourceElement }) => sourceEvent?.isTrusted || "ofUser" in sourceElement.dataset;
document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  askedAs.set(ctx, ctx.sourceElement.getAttribute("hx-get"));
  if (isOfUser(ctx) && ctx.target?.id) newest.set(ctx.target.id, ctx);
});
// Before the answer may change the address of the page. What an element asked for by itself no longer counts if it has
// come to ask for something else, such as a list with another filter.
const isOld = (ctx) => {
  const { sourceElement: source } = ctx, last = newest.get(ctx.target?.id);
  const now = source.id ? document.getElementById(source.id) : source;
  return isOfUser(ctx) ? last && last !== ctx : now && now.getAttribute("hx-get") !== askedAs.get(ctx);
};
document.addEventListener("htmx:before:response", (event) => { if (isOld(event.detail.ctx)) event.preventDefault(); });
// And again when its text is there: another answer may have come in between.
document.addEventListener("htmx:before:swap", (event) => {
  const { ctx } = event.detail;
  if (askedAs.has(ctx) && isOld(ctx)) event.preventDefault();
});
// An answer that never came, or was refused, leaves the place to the one before it.
for (const name of ["htmx:error", "htmx:response:error"]) {
  document.addEventListener(name, ({ detail: { ctx } }) => {
    if (ctx && newest.get(ctx.target?.id) === ctx) newest.delete(ctx.target.id);
  });
}
document.addEventListener("htmx:before:swap", ({ detail: { tasks } }) => {
  for (const task of tasks) if (task.target?.isConnected === false && task.target.id) task.target = document.getElementById(task.target.id);
});

// Details that are open and scroll positions survive when their part of the page is replaced.
const kept = new Map();
document.addEventListener("htmx:before:swap", ({ detail }) => {
  for (const { target } of detail.tasks) {
    for (const node of target?.querySelectorAll?.("details[id]") ?? []) kept.set(node.id, { open: node.open });
    for (const node of target?.querySelectorAll?.(".scroll[id]") ?? []) kept.set(node.id, { left: node.scrollLeft });
  }
});
document.addEventListener("htmx:after:swap", () => {
  for (const [id, was] of kept) {
    const node = document.getElementById(id);
    if (node && "open" in was && node.open !== was.open) node.open = was.open;
    if (node && "left" in was && node.scrollLeft !== was.left) node.scrollLeft = was.left;
  }
  kept.clear();
});

// The title and the icon of the page follow its state, so that a tab in the background tells it.
document.addEventListener("htmx:after:swap", () => {
  const told = document.querySelector("[data-title]");
  if (!told) return;
  const title = `${told.dataset.title} · Muster`, icon = document.querySelector('link[rel="icon"]');
  if (document.title !== title) document.title = title;
  if (told.dataset.icon && icon && icon.getAttribute("href") !== told.dataset.icon) icon.setAttribute("href", told.dataset.icon);
});

// What the page itself has changed in an element survives when the element is updated in place.
const OWN = { DETAILS: ["open"], BUTTON: ["hidden", "aria-pressed", "aria-label"] };
if (window.htmx) htmx.registerExtension("muster", {
  htmx_before_morph_attr: (element, { attrName }) => !OWN[element.tagName]?.includes(attrName),
});

// An open list says which rows it has, so that it is sent those that have changed.
document.addEventListener("htmx:config:request", ({ detail: { ctx } }) => {
  const list = ctx.sourceElement;
  if (list.id !== "jobs") return;
  ctx.request.headers["Muster-Rows"] = [...list.querySelectorAll("tr[data-v]")].map((row) => `${row.id.slice(4)}=${row.dataset.v}`).join(",");
});

// A button may leave out fields of its form, such as files that the answer does not depend on.
document.addEventListener("htmx:config:request", ({ detail: { ctx } }) => {
  const left = ctx.sourceElement.dataset.without;
  if (left) ctx.request.body.delete(left);
});
