"use strict";
/* Which models one is distinguishable from, all of many questions, and the attempts at a question.
   The rest of the page is readable without scripts. Texts are set as text, never as markup. */
(function () {
  // -- the models that one is distinguishable from -----------------------------------------------

  function pickable(table) {
    var rows = table.tBodies[0].rows;
    var sentence = table.closest("section").querySelector(".say");
    function pick(row) {
      var apart = row ? row.getAttribute("data-apart").split(" ").filter(Boolean).map(Number) : [];
      Array.prototype.forEach.call(rows, function (other, index) {
        other.classList.toggle("apart", apart.indexOf(index) >= 0);
      });
      sentence.hidden = !row;
      if (!row) return;
      var name = row.cells[0].textContent.trim();
      var others = rows.length - 1 - apart.length;
      sentence.textContent = name + " is distinguishable from " + apart.length + " of " + (rows.length - 1) +
        " models" + (others ? ", and not from " + others + "." : ".");
    }
    Array.prototype.forEach.call(rows, function (row) {
      if (!row.hasAttribute("data-apart")) return;
      ["mouseenter", "focus", "click"].forEach(function (event) {
        row.addEventListener(event, function () { pick(row); });
      });
      ["mouseleave", "blur"].forEach(function (event) {
        row.addEventListener(event, function () { pick(null); });
      });
    });
  }

  Array.prototype.forEach.call(document.querySelectorAll("table.scores"), function (table) {
    if (table.querySelector("[data-apart]")) pickable(table);
  });

  // -- many questions --------------------------------------------------------------------------

  Array.prototype.forEach.call(document.querySelectorAll(".all-questions"), function (button) {
    var table = button.closest("section").querySelector("table.long");
    table.classList.add("folded");
    button.hidden = false;
    button.addEventListener("click", function () {
      table.classList.remove("folded");
      button.hidden = true;
    });
  });

  // -- tables that are wider than the screen ---------------------------------------------------

  function hinted(box) {
    var hint = document.createElement("p");
    hint.className = "hint";
    hint.setAttribute("aria-hidden", "true");
    hint.textContent = "more columns to the right →";
    box.parentNode.insertBefore(hint, box.nextSibling);
    function update() {
      var more = box.scrollWidth - box.clientWidth - box.scrollLeft > 2;
      box.classList.toggle("more", more);
      hint.hidden = !more;
    }
    box.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(box);
    update();
  }

  Array.prototype.forEach.call(document.querySelectorAll(".scroll"), hinted);

  // -- the attempts at a question --------------------------------------------------------------

  var attemptsData = null;

  function element(tag, kind, text) {
    var made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function count(n, noun) {
    return n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
  }

  function passage(text) {
    var made = element("pre", "", text);
    made.dir = "auto";
    made.tabIndex = 0;
    return made;
  }

  function verdict(model, labels, i) {
    if (model.scores) return element("span", "", "score " + model.scores[i]);
    var label = labels[Number(model.categories[i])];
    return element("span", label === "right" || label === "wrong" ? label : "", label);
  }

  function answer(model, question, i) {
    var part = element("span", "", "answer ");
    var number = model.answers[i];
    part.appendChild(number < 0 ? element("i", "", "none") : element("bdi", "said", question.answers[number]));
    return part;
  }

  function attempt(model, question, labels, i) {
    var text = model.texts && model.texts[i];
    var box = element(text ? "details" : "div", "attempt");
    var head = text ? box.appendChild(element("summary")) : box;
    head.appendChild(element("b", "", i + 1));
    if (model.scores || model.categories) head.appendChild(verdict(model, labels, i));
    if (model.answers) head.appendChild(answer(model, question, i));
    if (model.tokens && model.tokens[i] !== null) head.appendChild(element("span", "", count(model.tokens[i], "token")));
    if (text) {
      box.appendChild(passage(text[0]));
      if (text.length > 1) {
        box.appendChild(element("p", "left-out", count(text[1], "character") + " in the middle are not shown."));
        if (text[2]) box.appendChild(passage(text[2]));
      }
    }
    return box;
  }

  function unscored(model) {
    var text = count(model.n_unscored, "attempt") + " without a score, as after an error, not counted";
    return element("p", "left-out", text + ".");
  }

  function attemptsOfModel(name, model, question, labels) {
    var box = element("details", "model-attempts");
    var summary = box.appendChild(element("summary"));
    summary.appendChild(element("bdi", "", name));
    if (model.categories && labels[1] === "right") {
      // one sign per attempt, which the lines below say in words
      var signs = Array.prototype.map.call(model.categories, function (c) { return Number(c) ? "●" : "○"; });
      summary.appendChild(element("span", "signs", signs.join(""))).setAttribute("aria-hidden", "true");
    }
    box.addEventListener("toggle", function () {
      if (!box.open || box.children.length > 1) return;
      var n = (model.scores || model.categories || model.texts || []).length;
      if (model.n && !model.scores && !model.categories) {
        box.appendChild(element("p", "left-out", "Which of them are right is not logged, only how many."));
      }
      for (var i = 0; i < n; i++) box.appendChild(attempt(model, question, labels, i));
      if (n < model.n) box.appendChild(element("p", "left-out", count(model.n - n, "further attempt") + " not shown."));
      if (model.n_unscored) box.appendChild(unscored(model));
    });
    return box;
  }

  function fill(dialog) {
    var place = dialog.querySelector(".attempts");
    if (place.firstChild) return;
    if (!attemptsData) attemptsData = JSON.parse(document.getElementById("attempts-data").textContent);
    var panel = attemptsData[place.getAttribute("data-panel")];
    var question = panel.questions[place.getAttribute("data-question")];
    if (question.right !== null) {
      var right = element("p", "gold", "Right answer: ");
      right.appendChild(element("bdi", "said", question.right));
      dialog.insertBefore(right, dialog.querySelector("table"));
    }
    var names = dialog.querySelectorAll("tbody th bdi");
    place.appendChild(element("h4", "", "Attempts"));
    question.models.forEach(function (model, number) {
      var listed = model.scores || model.categories || (model.texts && model.texts.length);
      if (!listed && !model.n_unscored) return;
      var box = place.appendChild(attemptsOfModel(names[number].textContent, model, question, panel.labels));
      box.open = question.models.length === 1;
    });
    if (place.children.length === 1) place.appendChild(element("p", "left-out", "Only counts are known of them."));
  }

  Array.prototype.forEach.call(document.querySelectorAll(".asked"), function (dialog) {
    dialog.addEventListener("beforetoggle", function (event) {
      if (event.newState === "open") fill(dialog);
    });
  });

  // all panels are open in print, and restored afterwards
  var panels = document.querySelectorAll("details"), before = [];
  window.addEventListener("beforeprint", function () {
    before = Array.prototype.map.call(panels, function (panel) { return panel.open; });
    Array.prototype.forEach.call(panels, function (panel) { panel.open = true; });
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
