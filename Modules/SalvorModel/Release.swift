/// The version of Salvor: that of CHANGELOG.md, `-dev` before it is released.
public let salvorVersion = "0.1.0"

/// The day of that version in CHANGELOG.md, or of the last change of its interfaces.
public let salvorReleaseDate = "2026-11-22"
