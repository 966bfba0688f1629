// The log pane: follows the end until the user scrolls up, filters the lines shown, wraps, and drops the oldest.
(() => {
  const MOST = 5000; // lines kept in the page; the download has them all
  const NEAR = 40; // pixels: a position this close to the end counts as the end
  let following = true;
  let missed = 0;
  let known = 0;

  const pane = () => document.getElementById("log-lines");
  const part = (name) => document.querySelector(`#log [data-log-${name}]`);
  const isAtEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  const wraps = () => localStorage.getItem("log-wrap") === "1";

  const follow = (on) => {
    following = on;
    if (on) { missed = 0; const box = pane(); if (box) box.scrollTop = box.scrollHeight; }
    show();
  };

  const show = () => {
    const button = part("follow"), newer = part("newer"), wrap = part("wrap");
    if (!button) return;
    const isLive = !!document.querySelector("#log-tail[hx-get]");
    button.hidden = !isLive;
    button.setAttribute("aria-pressed", String(following));
    button.textContent = following ? "Following" : "Follow";
    if (newer) {
      newer.hidden = following || !missed;
      newer.textContent = `${missed} new line${missed === 1 ? "" : "s"} ↓`;
    }
    wrap.hidden = false;
    wrap.setAttribute("aria-pressed", String(wraps()));
    pane().classList.toggle("wrap", wraps());
  };

  const filter = (lines) => {
    const words = part("filter")?.value.toLowerCase() || "";
    for (const line of lines) line.hidden = !!words && !line.classList.contains("skipped") && !line.textContent.toLowerCase().includes(words);
  };

  const begin = (isFirst = false) => {
    const box = pane();
    if (!box) return;
    known = box.querySelectorAll(".l").length;
    // When reading from a position in the log, start at the first line.
    if (document.querySelector("#log-tail[data-reading]")) {
      following = false;
      // Unless a link led to one line: that one, and the log itself, come into view.
      const here = box.querySelector(".l.here");
      box.scrollTop = here ? here.offsetTop - box.offsetTop - box.clientHeight / 3 : 0;
      if (here && isFirst) box.closest("#log").scrollIntoView();
      show();
      return;
    }
    // Only scrolling up stops following: new text, or a font that loads, also moves the end away.
    let top = 0;
    box.addEventListener("scroll", () => {
      const isUp = box.scrollTop < top - 2;
      top = box.scrollTop;
      if (isAtEnd(box) ? !following : following && isUp) follow(!following);
    }, { passive: true });
    follow(true);
    document.fonts.ready.then(() => following && follow(true));
  };

  const grow = () => {
    const box = pane();
    const lines = box.querySelectorAll(".l");
    const fresh = [...lines].slice(known).filter((line) => !line.classList.contains("skipped")).length;
    filter([...lines].slice(known));
    const extra = lines.length - MOST;
    if (extra > 0) {
      const before = box.scrollHeight;
      for (let index = 0; index < extra; index++) lines[index].remove();
      if (!following) box.scrollTop -= before - box.scrollHeight;
    }
    known = Math.min(lines.length, MOST);
    if (following) box.scrollTop = box.scrollHeight;
    else missed += fresh;
    show();
  };

  // Mark the rank or replica whose log is open, as the address of the page says (jobs/web/logs.py, _with_address).
  const mark = () => {
    const asked = new URLSearchParams(location.search), rank = asked.get("rank"), replica = asked.get("replica");
    for (const link of document.querySelectorAll("#ranks .cell[href], #ranks .replica-link")) {
      const own = new URL(link.href).searchParams;
      if ((rank && own.get("rank") === rank) || (replica && own.get("replica") === replica)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };

  document.addEventListener("htmx:after:history:replace", mark);
  document.addEventListener("htmx:after:settle", ({ detail: { task } }) => {
    const asked = task.target.id;
    mark();
    if (asked === "log") begin();
    else if (asked === "log-tail") grow();
  });
  document.body.addEventListener("click", (event) => {
    if (event.target.closest("[data-log-follow]")) follow(!following);
    if (event.target.closest("[data-log-newer]")) follow(true);
    if (event.target.closest("[data-log-wrap]")) { localStorage.setItem("log-wrap", wraps() ? "0" : "1"); show(); }
  });
  document.body.addEventListener("input", (event) => {
    if (event.target.matches("[data-log-filter]")) filter(pane().querySelectorAll(".l"));
  });
  // Times are UTC; the pointer shows the viewer's own, with the zone.
  const LOCAL = { dateStyle: "medium", timeStyle: "full" };
  document.body.addEventListener("pointerover", (event) => {
    const time = event.target.closest?.("time[data-at]");
    if (!time || time.title) return;
    const at = new Date(Number(time.dataset.at)), whole = new Intl.DateTimeFormat(undefined, LOCAL).format(at);
    time.title = `${whole} · ${String(at.getMilliseconds()).padStart(3, "0")} ms · link to this line`;
  });
  mark();
  begin(true);
})();
