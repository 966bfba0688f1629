// The log pane: follows the end until the user scrolls up, filters the lines shown, wraps, and drops the oldest.
(() => {
  const MOST = 5000; // lines kept in the page; the download has them all
  const NEAR = 40; // pixels: a position this close to the end counts as the end
  let following = true;
  let missed = 0;
  let known = 0;

  // Whether something is where the reader looks: the log may lie beside the ranks, and both below a long verdict.
  const isInView = (node) => {
    const { top, bottom } = node.getBoundingClientRect(), shown = Math.min(bottom, innerHeight) - Math.max(top, 0);
    return shown >= Math.min(bottom - top, innerHeight / 3);
  };
  const bringIntoView = (node) => { if (!isInView(node)) document.getElementById("log").scrollIntoView(); };
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

  // While the lines are narrowed, and when all of them are back, the reader stays where he was.
  let place = null;
  const topLine = (box) => [...box.querySelectorAll(".l:not([hidden])")].find((line) => line.offsetTop + line.offsetHeight - box.offsetTop > box.scrollTop + 2);
  const narrow = (words) => {
    const box = pane(), lines = [...box.querySelectorAll(".l")], top = topLine(box);
    if (!place?.isConnected) place = top;
    filter(lines);
    const from = lines.indexOf(place), shown = lines.find((line, index) => index >= from && !line.hidden) ?? lines.findLast((line) => !line.hidden);
    if (following) box.scrollTop = box.scrollHeight;
    else if (shown) box.scrollTop = shown.offsetTop - box.offsetTop + 1;
    if (!words) place = null;
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
      if (here && isFirst) bringIntoView(here);
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
    for (const link of document.querySelectorAll("#ranks :is(.cell[href], .replica-link, .needs a)")) {
      const own = new URL(link.href).searchParams;
      if ((rank && own.get("rank") === rank) || (replica && own.get("replica") === replica)) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };

  document.addEventListener("htmx:after:history:replace", mark);
  document.addEventListener("htmx:after:settle", ({ detail: { task } }) => {
    const asked = task.target.id;
    mark();
    if (asked === "log") {
      begin();
      // Chosen elsewhere on the page: it comes into view.
      if (!task.sourceElement?.closest("#log")) bringIntoView(pane());
    }
    else if (asked === "log-tail") grow();
  });
  document.body.addEventListener("click", (event) => {
    if (event.target.closest("[data-log-follow]")) follow(!following);
    if (event.target.closest("[data-log-newer]")) follow(true);
    if (event.target.closest("[data-log-wrap]")) { localStorage.setItem("log-wrap", wraps() ? "0" : "1"); show(); }
  });
  document.body.addEventListener("input", (event) => {
    if (event.target.matches("[data-log-filter]")) narrow(event.target.value);
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

// The divider between the left column and the log: dragged, or moved by the arrow keys; kept in this browser.
(() => {
  const watch = document.getElementById("watch"), divider = watch?.querySelector(".divider");
  if (!divider) return;
  const LEAST = Number(divider.ariaValueMin), MOST = Number(divider.ariaValueMax), USUAL = Number(divider.ariaValueNow);
  const move = (percent) => {
    const whole = Math.round(Math.min(MOST, Math.max(LEAST, percent)) * 10) / 10;
    watch.style.setProperty("--split", `${whole}%`);
    divider.setAttribute("aria-valuenow", whole);
    localStorage.setItem("split", whole);
  };
  const kept = Number(localStorage.getItem("split"));
  if (kept) move(kept);
  divider.addEventListener("pointerdown", (event) => { divider.setPointerCapture(event.pointerId); event.preventDefault(); });
  divider.addEventListener("pointermove", (event) => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    const box = watch.getBoundingClientRect();
    move(((event.clientX - box.left) / box.width) * 100);
  });
  divider.addEventListener("dblclick", () => move(USUAL));
  divider.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowRight: 2, Home: -100, End: 100 }[event.key];
    if (!step) return;
    event.preventDefault();
    move(Number(divider.ariaValueNow) + step);
  });
})();
