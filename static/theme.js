// Runs before the first paint: applies the theme chosen in this browser. Without a choice, the system's theme applies.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
