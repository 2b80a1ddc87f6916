"""What was written, and what of it must be found again in the end."""

import re


class Ledger:
    """Rows and values by who wrote them, and those that may be nowhere."""

    def __init__(self):
        self.count = 0
        # Where each row was made, and in which table; rows that may be nowhere; what a row refers to.
        self.made, self.excused, self.parents = {}, set(), {}
        # Rows that a mark took along; what was purged, with its table.
        self.marked, self.purged = set(), {}
        # The values of a row, as they were written one after the other: [who, value, whether it must be found].
        self.values = {}

    def next(self):
        self.count += 1
        return self.count

    def note(self, who, key, made, gone, values):
        """A transaction of `who` has put these rows and values there, and taken these rows away."""
        self.made.update({row: (who, key) for row in made})
        self.excused.update(gone)
        for row, value in values:
            self.values.setdefault(row, []).append([who, value, True])

    def refer(self, row, parent):
        self.parents.setdefault(row, set()).add(parent)

    def forget(self, who):
        """Nothing that `who` has written up to now must be found."""
        self.excused.update(row for row, (by, _) in self.made.items() if by == who)
        for written in self.values.values():
            for entry in written:
                if entry[0] == who:
                    entry[2] = False

    def forget_all(self):
        for who in {by for by, _ in self.made.values()} | {entry[0] for w in self.values.values() for entry in w}:
            self.forget(who)

    def is_excused(self, row, above=()):
        if row in self.excused or row in self.marked:
            return True
        return any(
            parent is not None and parent not in above and self.is_excused(parent, (*above, row))
            for parent in self.parents.get(row, ())
        )

    def missing_values(self, standing, named):
        """The last value of each row that is there, where the row has another one and nothing names it: (row, who, value, value there)."""
        for row, written in sorted(self.values.items()):
            who, value, must = written[-1]
            # A row that was deleted, or may be, can have come back with what it had before.
            if must and row in standing and not self.is_excused(row) and standing[row] != value:
                if not re.search(rf"\b{value}\b", named):
                    yield row, who, value, standing[row]
