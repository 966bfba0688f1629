// Shows every failed request: one of the user's in a line that stays until it is closed, a background refresh in another
// line that disappears with the next refresh that succeeds.
(() => {
  const outcome = document.getElementById("outcome"), stale = document.getElementById("stale");
  const BY_HAND = ["click", "submit", "change", "input", "keyup", "keydown"];
  const AWAY = [502, 503, 504];

  const say = (box, words) => { box.querySelector("span").textContent = words; box.hidden = false; };
  const hush = (box) => { box.hidden = true; };

  const isByHand = ({ request, sourceEvent }) => request.method !== "GET" || BY_HAND.includes(sourceEvent?.type);

  // The text of the element that was clicked: “Cancel the job”.
  const label = ({ request, sourceElement }) => {
    const element = request.submitter ?? sourceElement;
    // A cell of the matrix holds many numbers; what comes before the colon in its title names it: “Rank 2”.
    const named = element.getAttribute("aria-label") || (element.childElementCount > 1 && element.title.split(":")[0]);
    const text = (named || element.textContent).trim().replace(/\s+/g, " ");
    return text && text.length <= 60 ? `“${text}”` : request.method === "GET" ? "The requested content" : "Your change";
  };

  const problem = ({ response, text }) => {
    if (!(response.headers.get("Content-Type") || "").startsWith("application/problem+json")) return "";
    try { return String(JSON.parse(text).detail || ""); } catch { return ""; }
  };

  const reason = (ctx) => {
    if (!ctx.response) return "the server does not answer";
    const { status, headers } = ctx.response, detail = problem(ctx), wait = Number(headers.get("Retry-After"));
    if (AWAY.includes(status)) return detail || "the server does not answer";
    switch (status) {
      case 401: return "your session has ended; reload the page to sign in";
      case 403: return detail || "your role does not allow it";
      case 404: return detail || "this no longer exists, or you may not see it";
      case 429: return detail || `too many requests${wait ? `; try again in ${wait} s` : ""}`;
      case 500: return `the server failed (500)${detail ? `: ${detail}` : ""}`;
      default: return detail || `the server answered ${status}`;
    }
  };

  // A request that gave way to the next one of its element, as in a filter while somebody types.
  const began = new WeakMap();
  document.body.addEventListener("htmx:before:request", ({ detail: { ctx } }) => began.set(ctx, performance.now()));
  const isReplaced = (ctx, error) => error?.name === "AbortError" && performance.now() - began.get(ctx) < htmx.config.defaultTimeout * 0.95;

  const fail = ({ detail: { ctx, error } }) => {
    if (!ctx) return; // an error of the page itself; the console has it
    if (isReplaced(ctx, error)) return;
    const why = reason(ctx), status = ctx.response?.status ?? 0;
    if (!isByHand(ctx)) return say(stale, `This page is not up to date: ${why}. Trying again.`);
    if (ctx.request.method === "GET") return say(outcome, `${label(ctx)} cannot be shown: ${why}.`);
    // Without a complete response, whether the action took effect is unknown.
    const isOpen = !status || status >= 500;
    say(outcome, isOpen ? `${label(ctx)} may not have been done: ${why}. The page will show it when the server answers again.` : `${label(ctx)} was not done: ${why}.`);
    // The page was stale when the user acted: refresh it.
    if ([404, 409].includes(status)) document.body.dispatchEvent(new Event("live-sync"));
  };

  for (const name of ["htmx:response:error", "htmx:error"]) document.body.addEventListener(name, fail);
  document.body.addEventListener("htmx:before:request", ({ detail: { ctx } }) => { if (isByHand(ctx)) hush(outcome); });
  document.body.addEventListener("htmx:after:request", ({ detail: { ctx } }) => { if (ctx.response.status < 400 && !isByHand(ctx)) hush(stale); });
  document.body.addEventListener("click", (event) => { if (event.target.closest("[data-outcome-close]")) hush(outcome); });
})();
