/* Shows what a page tells without a reload. While the page says that something is live,
   it is fetched again every few seconds, and what is marked takes the place of what was
   there: parts with data-pgqueue-renew, and the rows of a list. Hidden tabs ask nothing.
   Where a page has a place to say so, it is told that a renewal has failed. */

"use strict";

(() => {
    // A server that does not answer for so long has failed.
    const ANSWER_SECONDS_MAX = 30;

    let timer = null;

    const seconds = () => document.getElementById("pgqueue-live")?.dataset.seconds;

    function wait() {
        clearTimeout(timer);
        if (seconds() && !document.hidden) {
            timer = setTimeout(renew, seconds() * 1000);
        }
    }

    async function renew() {
        let hasFailed = true;
        try {
            const answer = await fetch(location.href, {
                credentials: "same-origin",
                signal: AbortSignal.timeout(ANSWER_SECONDS_MAX * 1000),
            });
            if (answer.redirected) {
                // Logged out meanwhile, or no row any more: the next click will tell.
                tell(true);
                return;
            }
            if (answer.ok) {
                const text = await answer.text();
                hasFailed = !show(new DOMParser().parseFromString(text, "text/html"));
            }
        } catch {
            // The server is being restarted, say.
        }
        tell(hasFailed);
        wait();
    }

    function tell(hasFailed) {
        const told = document.getElementById("pgqueue-live-failed");
        if (told) told.hidden = !hasFailed;
    }

    function show(page) {
        // Numbers from before are better than none.
        const none = "[data-pgqueue-too-slow]";
        if (page.querySelector(none) && !document.querySelector(none)) return false;
        if (!page.getElementById("pgqueue-live")) {
            document.getElementById("pgqueue-live")?.remove();
        }
        for (const old of document.querySelectorAll("[data-pgqueue-renew]")) {
            const fresh = page.getElementById(old.id);
            if (fresh && !isInUse(old)) replace(old, fresh);
        }
        const rows = page.querySelector("#result_list tbody");
        if (rows) showRows(rows);
        return true;
    }

    // Whoever is about to press something in it, or to copy it, is not disturbed.
    function isInUse(part) {
        const here = document.activeElement;
        const chosen = getSelection();
        return (
            (part.contains(here) && !here.matches("a, summary")) ||
            (!chosen.isCollapsed && part.contains(chosen.anchorNode))
        );
    }

    const links = (part) => [...part.querySelectorAll("a, summary")];
    const nameOf = (link) => link.getAttribute("href") ?? link.parentElement.id;

    // A link keeps the focus, and what was opened stays open.
    function replace(old, fresh) {
        const here = document.activeElement;
        const alike = (part) => links(part).filter((each) => nameOf(each) === nameOf(here));
        const place = old.contains(here) ? alike(old).indexOf(here) : -1;
        for (const opened of old.querySelectorAll("details[id][open]")) {
            const again = fresh.querySelector(`#${CSS.escape(opened.id)}`);
            if (again) again.open = true;
        }
        old.replaceWith(fresh);
        if (place >= 0) alike(fresh)[place]?.focus({preventScroll: true});
    }

    const key = (row) => row.querySelector("th")?.textContent;
    // Without what somebody has opened.
    const said = (cell) => cell.innerHTML.replaceAll(' open=""', "");

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
            // What is as it was stays, and so do ticks.
            [...row.cells].forEach((cell, place) => {
                if (said(cell) !== said(here.cells[place])) {
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
