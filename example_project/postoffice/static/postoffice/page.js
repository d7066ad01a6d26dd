// Keeps the page up to date: asks for the same rows as JSON, once a second.
"use strict";

const PERIOD_MS = 1000;
const mails = document.getElementById("mails");
const live = document.getElementById("live");
const older = document.getElementById("older");

// Everything from the server is set as text, never as HTML.
function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function rowOf(mail) {
  const row = document.createElement("tr");
  const link = element("a", mail.id);
  link.href = mail.url;
  const subject = [document.createTextNode(mail.subject)];
  if (mail.error) subject.push(element("small", mail.error));
  const time = element("time", new Date(mail.updated_at).toLocaleTimeString());
  time.dateTime = mail.updated_at;
  const status = element("span", mail.status, `status ${mail.status}`);
  for (const content of [[link], [status], subject, [mail.to.join(", ")], [time]]) {
    const cell = document.createElement("td");
    cell.append(...content);
    row.append(cell);
  }
  return row;
}

function show({ messages, next, counts }) {
  mails.replaceChildren(...messages.map(rowOf));
  document.getElementById("empty").hidden = messages.length > 0;
  showCounts(counts);
  older.hidden = next === null;
  const query = new URLSearchParams(older.search);
  query.set("before", next);
  older.search = query;
}

function showCounts(counts) {
  const { duplicates, ...byStatus } = counts;
  const all = Object.values(byStatus).reduce((sum, count) => sum + count, 0);
  for (const [name, count] of Object.entries({ ...counts, all })) {
    document.querySelector(`[data-count="${name}"]`).textContent = count.toLocaleString("en");
  }
}

async function refresh() {
  // Text that somebody is marking, and links that have the focus, stay as they are.
  const busy = !getSelection().isCollapsed || mails.contains(document.activeElement);
  if (document.hidden || busy) return;
  try {
    const answer = await fetch(document.body.dataset.url);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
    live.textContent = "Live";
    live.className = "";
  } catch (error) {
    live.textContent = `Not live: ${error.message}`;
    live.className = "broken";
  }
}

// The next question is asked a second after the last answer: a slow server is not
// asked more often.
async function keepFresh() {
  await refresh();
  setTimeout(keepFresh, PERIOD_MS);
}

keepFresh();
