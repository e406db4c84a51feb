// What a page does beyond links and forms: it follows changes, loads earlier entries, and listens to keys.
// Everything works without it, but for what appears by itself.
"use strict";

const live = document.getElementById("live");
const root = document.body.dataset.root || "";

// --- something changed: ask for the part again -------------------------------------------------------------------

async function refresh() {
  const answer = await fetch(live.dataset.part, { redirect: "error" });
  const text = await answer.text();
  if (!answer.ok) {
    location.reload(); // the page itself tells what is wrong
    return;
  }
  const open = [...live.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  const focused = document.activeElement && live.contains(document.activeElement);
  if (focused && document.activeElement.matches("input, select")) {
    tell("This session has changed.", refresh);
    return; // someone is typing
  }
  live.innerHTML = text; // our own server's, and escaped there
  for (const summary of live.querySelectorAll("details > summary")) {
    if (open.includes(summary.textContent)) summary.parentElement.open = true;
  }
  watchEarlier();
}

function tell(text, act) {
  let note = document.getElementById("note");
  if (!note) {
    note = document.createElement("div");
    note.id = "note";
    note.className = "toast";
    note.setAttribute("role", "status");
    document.getElementById("main").append(note);
  }
  const button = document.createElement("button");
  button.textContent = "Show it";
  button.addEventListener("click", () => {
    note.remove();
    document.activeElement.blur();
    act();
  });
  note.replaceChildren(text + " ", button);
}

if (live && live.dataset.live) {
  const source = new EventSource(live.dataset.live);
  let waiting = false;
  source.addEventListener("changed", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      refresh();
    }, 50);
  });
  addEventListener("pagehide", () => source.close());
}

// --- scrolling up brings what was said before --------------------------------------------------------------------

const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting) loadEarlier(one.target);
});

function watchEarlier() {
  for (const marker of document.querySelectorAll("a.earlier")) watcher.observe(marker);
}

async function loadEarlier(marker) {
  watcher.unobserve(marker);
  const answer = await fetch(marker.dataset.more, { redirect: "error" });
  if (!answer.ok) {
    marker.textContent = "the earlier entries could not be loaded; try again";
    return;
  }
  const conversation = marker.parentElement;
  const height = conversation.scrollHeight;
  const part = document.createElement("template");
  part.innerHTML = await answer.text(); // our own server's, and escaped there
  marker.replaceWith(part.content);
  conversation.scrollTop += conversation.scrollHeight - height; // what was in sight stays there
  watchEarlier();
}

document.addEventListener("click", (event) => {
  const marker = event.target.closest("a.earlier");
  if (!marker) return;
  event.preventDefault();
  loadEarlier(marker);
});

const conversation = document.getElementById("conversation");
if (conversation) {
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
  else conversation.scrollTop = conversation.scrollHeight;
}
watchEarlier();

// --- keys --------------------------------------------------------------------------------------------------------

const steps = () => [...document.querySelectorAll("tbody a, a.moment, .snapshots a")];

function move(by) {
  const all = steps();
  if (!all.length) return;
  const place = all.indexOf(document.activeElement);
  all[Math.min(Math.max(place + by, 0), all.length - 1)].focus();
}

const KEYS = {
  "/": () => (document.getElementById("find") ? document.getElementById("find").focus() : (location.href = root + "/search")),
  j: () => move(1),
  k: () => move(-1),
  g: () => (location.href = root + "/"),
  n: () => document.querySelector(".then a")?.click(),
  "?": () => tell("/ find · j k move · Enter open · g sessions · n back to now", () => {}),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
