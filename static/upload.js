// A browser uploads files without their folders, so their relative paths are sent in a separate field, in the same order.
(() => {
  const form = document.querySelector("form.submit");
  if (!form) return;
  const inputs = [...form.querySelectorAll("input[name=upload]")];
  const said = form.querySelector("[data-chosen]");
  const SKIPPED = /(^|\/)(\.git|__pycache__|\.venv|node_modules|\.mypy_cache|\.ruff_cache)\//;

  // The folder itself is not part of the paths: its content becomes the job's working folder.
  const path = (file) => (file.webkitRelativePath ? file.webkitRelativePath.split("/").slice(1).join("/") : file.name);

  const keepOnly = (input) => {
    const kept = new DataTransfer();
    for (const file of input.files) if (!SKIPPED.test(`/${file.webkitRelativePath || file.name}`)) kept.items.add(file);
    if (kept.files.length !== input.files.length) {
      const paths = new Map([...input.files].map((file) => [file, path(file)]));
      input.musterPaths = [...kept.files].map((file) => paths.get(file) ?? path(file));
      input.files = kept.files;
    } else input.musterPaths = [...input.files].map(path);
  };

  form.addEventListener("change", (event) => {
    const input = event.target;
    if (!inputs.includes(input)) return;
    keepOnly(input);
    const all = inputs.flatMap((one) => [...one.files]);
    form.elements.paths.value = JSON.stringify(inputs.flatMap((one) => one.musterPaths ?? []));
    const total = all.reduce((sum, file) => sum + file.size, 0);
    said.textContent = all.length ? `${all.length} file${all.length > 1 ? "s" : ""}, ${total < 1000 ? `${total} B` : `${(total / 1024).toFixed(total < 10240 ? 1 : 0)} KiB`}` : "No files chosen.";
  });
})();
