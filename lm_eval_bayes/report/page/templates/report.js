"use strict";
/* Sorting of tables, and opening of panels. The page is readable without scripts. */
(function () {
  function value(row, column) {
    var cell = row.cells[column];
    if (!cell) return null;
    var text = cell.getAttribute("data-v");
    if (text === null) return cell.textContent.trim().toLocaleLowerCase();
    return text === "" ? null : Number(text);
  }

  function sort(table, column, ascending) {
    var body = table.tBodies[0];
    var rows = Array.prototype.map.call(body.rows, function (row, index) {
      return { row: row, value: value(row, column), index: index };
    });
    rows.sort(function (a, b) {
      // missing values are last in both directions
      if (a.value === null || b.value === null) {
        return a.value === b.value ? a.index - b.index : a.value === null ? 1 : -1;
      }
      var order = typeof a.value === "string" ? a.value.localeCompare(String(b.value)) : a.value - b.value;
      return (ascending ? order : -order) || a.index - b.index;
    });
    rows.forEach(function (entry) { body.appendChild(entry.row); });
  }

  function sortable(table) {
    var heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    Array.prototype.forEach.call(heads, function (head, column) {
      var first = head.getAttribute("data-sort");
      if (!first) return;
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var now = head.getAttribute("aria-sort");
        var ascending = now ? now !== "ascending" : first === "ascending";
        Array.prototype.forEach.call(heads, function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sort(table, column, ascending);
      });
    });
  }

  var panels = document.querySelectorAll("details");

  function all(open) {
    Array.prototype.forEach.call(panels, function (panel) { panel.open = open; });
  }

  Array.prototype.forEach.call(document.querySelectorAll("table.sortable"), sortable);

  Array.prototype.forEach.call(document.querySelectorAll("[data-do]"), function (button) {
    button.hidden = false;
    button.parentNode.hidden = false;
    button.addEventListener("click", function () { all(button.getAttribute("data-do") === "open"); });
  });

  // all panels are open in print, and restored afterwards
  var before = [];
  window.addEventListener("beforeprint", function () {
    before = Array.prototype.map.call(panels, function (panel) { return panel.open; });
    all(true);
  });
  window.addEventListener("afterprint", function () {
    before.forEach(function (open, index) { panels[index].open = open; });
    before = [];
  });

  // a link into a closed panel opens the panel
  function reveal() {
    var target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (var at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
  }
  window.addEventListener("hashchange", reveal);
  reveal();
})();
