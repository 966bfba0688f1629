// Shows every failed request: one of the user's in a line that stays until it is closed, a background refresh in another
// line that disappears with the next refresh that succeeds.
(() => {
  const outcome = document.getElementById("outcome"), stale = document.getElementById("stale");
  const BY_HAND = ["click", "submit", "change", "input", "keyup", "keydown"];
  const AWAY = [502, 503, 504];

  const say = (box, words) => { box.querySelector("span").textContent = words; box.hidden = false; };
  const hush = (box) => { box.hidden = true; };

  const isByHand = ({ requestConfig }) => requestConfig.verb !== "get" || BY_HAND.includes(requestConfig.triggeringEvent?.type);

  // The text of the element that was clicked: “Cancel the job”.
  const label = ({ requestConfig, elt }) => {
    const text = (requestConfig.triggeringEvent?.submitter ?? elt).textContent.trim().replace(/\s+/g, " ");
    return text && text.length <= 60 ? `“${text}”` : requestConfig.verb === "get" ? "The requested content" : "Your change";
  };

  const problem = (xhr) => {
    if (!(xhr.getResponseHeader("Content-Type") || "").startsWith("application/problem+json")) return "";
    try { return String(JSON.parse(xhr.responseText).detail || ""); } catch { return ""; }
  };

  const reason = (xhr) => {
    const detail = problem(xhr), wait = Number(xhr.getResponseHeader("Retry-After"));
    if (!xhr.status || AWAY.includes(xhr.status)) return detail || "the server does not answer";
    switch (xhr.status) {
      case 401: return "your session has ended; reload the page to sign in";
      case 403: return detail || "your role does not allow it";
      case 404: return detail || "this no longer exists, or you may not see it";
      case 429: return detail || `too many requests${wait ? `; try again in ${wait} s` : ""}`;
      case 500: return `the server failed (500)${detail ? `: ${detail}` : ""}`;
      default: return detail || `the server answered ${xhr.status}`;
    }
  };

  const fail = ({ detail }) => {
    const { xhr, requestConfig } = detail;
    const why = reason(xhr);
    if (!isByHand(detail)) return say(stale, `This page is not up to date: ${why}. Trying again.`);
    if (requestConfig.verb === "get") return say(outcome, `${label(detail)} cannot be shown: ${why}.`);
    // Without a complete response, whether the action took effect is unknown.
    const isOpen = !xhr.status || xhr.status >= 500;
    say(outcome, isOpen ? `${label(detail)} may not have been done: ${why}. The page will show it when the server answers again.` : `${label(detail)} was not done: ${why}.`);
    // The page was stale when the user acted: refresh it.
    if ([404, 409].includes(xhr.status)) document.body.dispatchEvent(new Event("live-sync"));
  };

  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) document.body.addEventListener(name, fail);
  document.body.addEventListener("htmx:beforeRequest", ({ detail }) => { if (isByHand(detail)) hush(outcome); });
  document.body.addEventListener("htmx:afterRequest", ({ detail }) => { if (detail.successful && !isByHand(detail)) hush(stale); });
  document.body.addEventListener("click", (event) => { if (event.target.closest("[data-outcome-close]")) hush(outcome); });
})();
