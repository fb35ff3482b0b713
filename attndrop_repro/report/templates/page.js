"use strict";
for (const form of document.querySelectorAll("form.filter")) {
  const table = document.getElementById(form.dataset.table);
  const rows = [...table.tBodies[0].rows];
  const [input, select, output] = ["input", "select", "output"].map((tag) => form.querySelector(tag));
  const headings = [...table.tHead.rows[0].cells];
  const status = headings.findIndex((cell) => cell.textContent.trim() === "Status");
  for (const word of [...new Set(rows.map((row) => row.cells[status].textContent.trim()))].sort()) {
    select.add(new Option(word, word));
  }
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const keep = words.every((word) => text.includes(word)) &&
        (!select.value || row.cells[status].textContent.trim() === select.value);
      row.hidden = !keep;
      shown += keep;
    }
    output.textContent = shown + " of " + rows.length + " runs";
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
      };
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = typeof x === "number" && typeof y === "number"
          ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
  input.addEventListener("input", show);
  select.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}
