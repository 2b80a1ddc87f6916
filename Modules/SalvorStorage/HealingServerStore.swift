import SalvorModel

/// A server store that takes offers (semantics 10): changes of an upload that bring back what it lost with a restore
/// (`UploadedChange.offer`). A store without it tells devices so, and they keep what was lost in their archives.
///
/// What becomes of an offered column:
///
/// | the server has | then |
/// | --- | --- |
/// | what an ordinary write made of it after the parting | stands; the offered value is a conflict version |
/// | what an older version's offer made of it | the offered value |
/// | what a newer version's offer made of it, or the same one's | stands; nothing is kept |
/// | what an offer made of it, and nobody can tell which is newer | stands; the offered value is a conflict version |
/// | what it was at the parting | the offered value |
///
/// A delete is a version of all columns. An offer of a commit that the server has is refused (`not-lost`).
public protocol HealingServerStore: RecoveringServerStore {}
