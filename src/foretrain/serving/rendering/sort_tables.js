// Click a column's head to sort by it. Without scripts the tables stand as they were written.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      const key = (row) => {
        const cell = row.cells[column];
        return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent.trim();
      };
      const compare = (a, b) => (typeof a === "number" && typeof b === "number")
        ? a - b
        : String(a).localeCompare(String(b), undefined, { numeric: true });
      const rows = [...body.rows].sort((a, b) => (falling ? -1 : 1) * compare(key(a), key(b)));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
