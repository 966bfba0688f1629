// Swagger UI has a dark theme of its own, under a class: keep it equal to the page's.
(() => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => root.classList.toggle("dark-mode", root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  system.addEventListener("change", follow);
  new MutationObserver(follow).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  follow();
})();
