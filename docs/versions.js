// Adds a list of versions to the menu of the book. The site has a folder for each version, and `versions.json` above them, an
// array of their names. Without that file, as in a book that is built locally, there is no list.
(async () => {
    const root = new URL(path_to_root || "./", location.href);
    const above = new URL("../", root);
    const answer = await fetch(new URL("versions.json", above)).catch(() => null);
    if (!answer || !answer.ok) return;
    const versions = await answer.json();
    const current = root.pathname.slice(above.pathname.length).replace("/", "");
    if (!versions.includes(current)) return;
    const list = document.createElement("select");
    list.setAttribute("aria-label", "Version of this book");
    list.style.margin = "auto 0.5em";
    for (const version of versions) {
        list.add(new Option(version, version, false, version === current));
    }
    list.addEventListener("change", async () => {
        const start = new URL(`${list.value}/`, above);
        const page = new URL(location.href.slice(root.href.length), start);
        // A page that the other version does not have leads to its first page.
        const there = await fetch(page, { method: "HEAD" }).catch(() => null);
        location.href = there && there.ok ? page : start;
    });
    document.querySelector(".right-buttons")?.prepend(list);
})();
