/* Shows how far a run is, without a reload. While the page says that something is live,
   it is fetched again every few seconds, and what is marked takes the place of what was
   there: parts with data-pgqueue-renew, and the rows of a list. Hidden tabs ask nothing. */

"use strict";

(() => {
    let timer = null;

    const seconds = () => document.getElementById("pgqueue-live")?.dataset.seconds;

    function wait() {
        clearTimeout(timer);
        if (seconds() && !document.hidden) {
            timer = setTimeout(renew, seconds() * 1000);
        }
    }

    async function renew() {
        try {
            const answer = await fetch(location.href, {credentials: "same-origin"});
            // Logged out meanwhile, or no row any more: the next click will tell.
            if (answer.redirected) return;
            if (answer.ok) {
                const text = await answer.text();
                show(new DOMParser().parseFromString(text, "text/html"));
            }
        } catch {
            // The server is being restarted, say.
        }
        wait();
    }

    function show(page) {
        for (const old of document.querySelectorAll("[data-pgqueue-renew]")) {
            const fresh = page.getElementById(old.id);
            // Whoever is about to press something in it is not disturbed.
            if (fresh && !old.contains(document.activeElement)) old.replaceWith(fresh);
        }
        if (!page.getElementById("pgqueue-live")) {
            document.getElementById("pgqueue-live")?.remove();
        }
        const rows = page.querySelector("#result_list tbody");
        if (rows) showRows(rows);
    }

    const key = (row) => row.querySelector("th a")?.getAttribute("href");

    function showRows(fresh) {
        const old = document.querySelector("#result_list tbody");
        if (!old) {
            // The first row of a list that was empty.
            location.reload();
            return;
        }
        const known = new Map([...old.rows].map((row) => [key(row), row]));
        for (const row of [...fresh.rows].reverse()) {
            const here = known.get(key(row));
            if (!here) {
                old.prepend(row);
                continue;
            }
            // Ticked boxes stay ticked.
            [...row.cells].forEach((cell, place) => {
                if (!cell.classList.contains("action-checkbox-column")
                    && !cell.classList.contains("action-checkbox")
                    && cell.innerHTML !== here.cells[place].innerHTML) {
                    here.cells[place].replaceWith(cell.cloneNode(true));
                }
            });
        }
    }

    document.addEventListener("visibilitychange", () => {
        if (document.hidden) clearTimeout(timer);
        else if (seconds()) renew();
    });
    document.addEventListener("DOMContentLoaded", wait);
})();
