// Before the first paint: the theme that this browser chose. Without a choice the system's holds.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
