"""Makes the DocC catalogues of the products from the guides, so that a page is written once.

    catalogue.py DIRECTORY VERSION      writes DIRECTORY/PRODUCT.docc for each product

A link to a guide that is an article of the same catalogue becomes one of DocC's; every other one leads to the site's page.
"""

import os
import re
import sys

# Each product: what it is, its topics with the guides that are its articles, and the libraries behind its one import.
PRODUCTS = {
    "SalvorClient": (
        "Keeps an application's own SQLite database in step with a server, and recovers when histories part.",
        [
            ("To begin with", ["application", "what-the-user-sees", "grdb", "other-languages"]),
            ("Coming from elsewhere", ["coming-from"]),
            ("Rows and rules", ["subscriptions", "flag-columns", "schema-evolution", "encryption"]),
            ("When something is refused or lost", ["error-archive", "recovery", "heal"]),
        ],
        ["SalvorClientEngine", "SalvorModel", "SalvorStorage", "SalvorRecovery", "SalvorTransport", "SalvorConfiguration"],
    ),
    "SalvorServer": (
        "The server of SQLite databases on devices, in a process of your own.",
        [
            ("To run it", ["operate", "upgrade", "limits"]),
            ("Rules", ["conflicts", "erase", "heal"]),
        ],
        ["SalvorServerEngine", "SalvorModel", "SalvorStorage", "SalvorTransport", "SalvorConfiguration"],
    ),
    "SalvorModules": (
        "The protocols that a module of your own conforms to, and the types that they speak of.",
        [("A module of your own", ["modules"])],
        ["SalvorModuleKit", "SalvorStorage", "SalvorTransport", "SalvorRecovery"],
    ),
}
GUIDES = "docs/guides"


def article(name: str, names: list[str], site: str) -> str:
    """The guide as an article of DocC's."""
    with open(f"{GUIDES}/{name}.md", encoding="utf-8") as file:
        text = file.read()

    def link(match: re.Match) -> str:
        label, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        path, _, anchor = target.partition("#")
        if not path:
            return label
        full = os.path.normpath(f"{GUIDES}/{path}")
        guide = os.path.splitext(os.path.basename(full))[0]
        if os.path.dirname(full) == GUIDES and guide in names:
            return f"[{label}](<doc:{guide}>)"
        if not full.endswith(".md"):
            return label
        page = full.removesuffix("README.md").removesuffix(".md")
        return f"[{label}]({site}/{page.rstrip('/')}/{'#' + anchor if anchor else ''})"

    # Outside of code blocks only.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    parts[::2] = [re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, part) for part in parts[::2]]
    text = "".join(parts)
    # DocC takes the first paragraph for the abstract, and no comment before it.
    return re.sub(r"^<!--.*?-->\n", "", text, flags=re.M)


def main(directory: str, version: str) -> None:
    for product, (what, topics, libraries) in PRODUCTS.items():
        folder = f"{directory}/{product}.docc"
        os.makedirs(folder)
        names = [name for _, group in topics for name in group]
        listed = "\n\n".join(
            f"### {title}\n\n" + "\n".join(f"- <doc:{name}>" for name in group) for title, group in topics
        )
        behind = "\n".join(
            f"- [{library}](/{version}/api/{library}/documentation/{library.lower()}/)" for library in libraries
        )
        with open(f"{folder}/{product}.md", "w", encoding="utf-8") as file:
            file.write(
                f"# ``{product}``\n\n{what}\n\n## Overview\n\n`import {product}` brings these libraries; each has a reference of its own:\n\n"
                f"{behind}\n\n## Topics\n\n{listed}\n"
            )
        for name in names:
            with open(f"{folder}/{name}.md", "w", encoding="utf-8") as file:
                file.write(article(name, names, f"/{version}"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
