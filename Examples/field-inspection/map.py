#!/usr/bin/env python3
"""Writes DineSafe's rows into the server's database, as the office's own program would: with the SQLite library at hand,
which knows nothing of Salvor. The server may be running.

usage: map.py CONSOLIDATED [--all]     without --all: the cut of 150 establishments

The source has inspections, what they found, and where. It has no forms, no sections and no inspectors: an inspection's
findings are put into a form of its period, with a section for each severity, and each site is given to one of two people.
"""
import csv
import gzip
import os
import sqlite3
import sys

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../dinesafe/data")
PEOPLE = ["anna", "ben"]
# The form of a period, its first year, and whether it may still be chosen.
FORMS = [("Food premises inspection, 2001", 0, 0), ("Food premises inspection, 2020", 2020, 0),
         ("Food premises inspection, 2021", 2021, 1)]


def rows(table, everything):
    path = os.path.join(DATA, table + ".csv.gz") if everything else os.path.join(DATA, "small", table + ".csv")
    with (gzip.open(path, "rt", encoding="utf-8", newline="") if everything
          else open(path, encoding="utf-8", newline="")) as file:
        for row in csv.DictReader(file):
            yield {name: value if value != "" else None for name, value in row.items()}


def guid(kind, *numbers):
    """A GUID that is the same each time: the kind of row, and the source's own numbers."""
    numbers = [int(number) for number in numbers]
    low = numbers[0] if numbers else 0
    rest = (numbers[1:] + [0, 0])[:2]
    return f"{kind:08x}-{rest[0]:04x}-4{rest[1]:03x}-8000-{low:012x}"


def form_of(date):
    return max(place for place, form in enumerate(FORMS) if form[1] <= int(date[:4]))


def insert(database, table, columns, values):
    names = ", ".join(f'"{name}"' for name in columns)
    slots = ", ".join("?" * len(columns))
    database.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({slots})', values)


def office(database, everything):
    insert(database, "Group", ["GroupID", "Name"], [("inspectors", "Inspectors"), ("office", "Office")])
    insert(database, "Role", ["RoleID", "Name"], [("inspect", "May inspect"), ("review", "May review")])
    insert(database, "GroupRole", ["GroupID", "RoleID"],
           [("inspectors", "inspect"), ("office", "inspect"), ("office", "review")])
    insert(database, "OrgGroup", ["OrgID", "GroupID"], [("toronto", "inspectors"), ("toronto", "office")])
    insert(database, "Principal", ["PrincipalID", "Name", "GroupID"],
           [("anna", "Anna", "inspectors"), ("ben", "Ben", "inspectors"), ("clara", "Clara", "office")])
    insert(database, "Config", ["Name", "Value"],
           [("PhotoBytesMax", "4194304"), ("Source", "City of Toronto, DineSafe, Open Government Licence - Toronto")])
    insert(database, "ViolationLevel", ["ViolationLevelID", "Name"],
           [(guid(6, row["id"]), row["name"]) for row in rows("severity", everything)])
    types = list(rows("establishment_type", everything))
    insert(database, "InspectionType", ["InspectionTypeID", "Name"], [(guid(2, row["id"]), row["name"]) for row in types])
    insert(database, "OrgInspectionType", ["OrgID", "InspectionTypeID"],
           [("toronto", guid(2, row["id"])) for row in types])
    return types


def forms(database, everything, types, used):
    for place, (name, _, active) in enumerate(FORMS):
        insert(database, "Form", ["FormID", "Name", "IsActive"], [(guid(7, place), name, active)])
        insert(database, "FormVersion", ["FormVersionID", "FormID", "Version"], [(guid(8, place), guid(7, place), 1)])
        if active:
            insert(database, "AutoAssignForm", ["FormID", "InspectionTypeID"],
                   [(guid(7, place), guid(2, row["id"])) for row in types])
        insert(database, "FormSection", ["FormSectionID", "FormVersionID", "Name", "SortOrder"],
               [(guid(9, row["id"], place), guid(8, place), row["name"], int(row["id"]))
                for row in rows("severity", everything)])
    labels = {row["id"]: row["text"] for row in rows("infraction_type", everything)}
    insert(database, "FormControl", ["FormControlID", "FormSectionID", "Label", "ControlType"],
           [(guid(10, kind, place, severity), guid(9, severity, place), labels[kind], "violation")
            for place, severity, kind in sorted(used, key=lambda x: (x[0], int(x[1]), int(x[2])))])


def sites(database, everything):
    kinds = {}
    for row in rows("establishment", everything):
        kinds[row["id"]] = row
    insert(database, "Site", ["SiteID", "Name", "InspectionTypeID"],
           [(guid(11, row["id"]), row["name"], guid(2, row["establishment_type_id"])) for row in kinds.values()])
    insert(database, "InspectionCmeValue", ["InspectionCmeValueID", "SiteID", "Name", "Value"],
           [(guid(13, row["id"]), guid(11, row["id"]), "InspectionsPerYear", row["min_inspections_per_year"])
            for row in kinds.values()])
    insert(database, "SiteAddress", ["SiteAddressID", "SiteID", "Address", "Latitude", "Longitude"],
           [(guid(12, row["establishment_id"]), guid(11, row["establishment_id"]), row["address"],
             row["latitude"] and float(row["latitude"]), row["longitude"] and float(row["longitude"]))
            for row in rows("establishment_address", everything)])
    return kinds


def inspections(database, everything, kinds):
    statuses = {row["id"]: row["name"] for row in rows("inspection_status", everything)}
    found = {row["id"]: row for row in rows("inspection", everything)}
    years = sorted({row["date"][:4] for row in found.values()})
    insert(database, "Project", ["ProjectID", "Name"], [(guid(3, year), "DineSafe " + year) for year in years])
    insert(database, "Inspection",
           ["InspectionID", "SiteID", "ProjectID", "InspectionTypeID", "PrincipalID", "InspectionDate", "Status"],
           [(guid(14, row["id"]), guid(11, row["establishment_id"]), guid(3, row["date"][:4]),
             guid(2, kinds[row["establishment_id"]]["establishment_type_id"]),
             PEOPLE[int(row["establishment_id"]) % len(PEOPLE)], row["date"], statuses.get(row["inspection_status_id"]))
            for row in found.values()])
    insert(database, "InspectionForm", ["InspectionFormID", "InspectionID", "FormID", "FormVersionID"],
           [(guid(15, row["id"]), guid(14, row["id"]), guid(7, form_of(row["date"])), guid(8, form_of(row["date"])))
            for row in found.values()])
    return found


def answers(database, everything, found, findings):
    actions = {row["id"]: row["name"] for row in rows("action", everything)}
    outcomes = {row["id"]: row["name"] for row in rows("outcome", everything)}
    sections = sorted({(row["inspection_id"], row["severity_id"]) for row in findings})
    insert(database, "InspectionFormSection",
           ["InspectionFormSectionID", "InspectionFormID", "FormSectionID", "IsComplete"],
           [(guid(16, inspection, severity), guid(15, inspection), guid(9, severity, form_of(found[inspection]["date"])), 1)
            for inspection, severity in sections])
    insert(database, "InspectionFormAnswer",
           ["InspectionFormAnswerID", "InspectionFormSectionID", "FormControlID", "ViolationLevelID", "Value", "Outcome",
            "AmountFined"],
           [(guid(18, row["inspection_id"], row["line"]), guid(16, row["inspection_id"], row["severity_id"]),
             guid(10, row["infraction_type_id"], form_of(found[row["inspection_id"]]["date"]), row["severity_id"]),
             guid(6, row["severity_id"]), actions.get(row["action_id"]), outcomes.get(row["outcome_id"]),
             row["amount_fined"] and float(row["amount_fined"])) for row in findings])


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    everything = "--all" in sys.argv[1:]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    if not os.path.exists(arguments[0]):
        sys.exit(f"There is no {arguments[0]}: start salvor serve, which makes it.")
    database = sqlite3.connect(arguments[0], isolation_level=None, timeout=60)
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("BEGIN IMMEDIATE")
    types = office(database, everything)
    kinds = sites(database, everything)
    findings = list(rows("infraction", everything))
    dates = {row["id"]: row["date"] for row in rows("inspection", everything)}
    forms(database, everything, types,
          {(form_of(dates[row["inspection_id"]]), row["severity_id"], row["infraction_type_id"]) for row in findings})
    found = inspections(database, everything, kinds)
    answers(database, everything, found, findings)
    database.execute("COMMIT")
    print(f"{len(kinds)} sites, {len(found)} inspections, {len(findings)} answers")


if __name__ == "__main__":
    main()
